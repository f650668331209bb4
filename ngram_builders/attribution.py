"""Where a text stands in what tables were built from: the longest passages of it, with files and lines.

In: the ids of a text, a table. Out: passages with their places. Passages are found as bytes: a text may begin or
end inside a token, and what stands around it decides how its ends are cut into tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path

from ngram_builders.index.table_file import Table
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.scratch import file_stamp
from ngram_builders.token_cache import IndexedFiles, read_indexed_files

_LEAST_TOKENS = 3  # of a passage: everybody writes shorter ones

Decode = Callable[[Sequence[int]], bytes]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file, as editors show it."""

    file: str
    line: int
    column: int
    source: str  # the line itself, as it was counted
    changed: bool  # whether the file is another one by now


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text that stands elsewhere word for word."""

    start: int  # in bytes
    end: int
    spots: tuple[Spot, ...]  # none where the files are not known here


def find_passages(
    ids: Sequence[int], shards: Sequence[Table], table: NgramTable, decode: Decode
) -> tuple[Passage, ...]:
    """Cover a text from its end with the longest passages that stand in a table; what is in none is left out."""
    known = read_indexed_files(table.paths, table.fingerprint)
    documents = [
        decode(shard.array.stream(number).tolist()) for shard in shards for number in range(shard.summary.files)
    ]

    def stands(start: int) -> bool:  # if so, it does from any later byte on, too
        return any(text[start:end] in document for document in documents)

    pieces = [decode([one]) for one in ids]
    text, ends = b"".join(pieces), [0, *accumulate(map(len, pieces))]
    whole = text.strip()
    first = text.index(whole)
    end = first + len(whole)
    passages = []
    while end > first:
        tokens = bisect_right(ends, end) - 1  # that end there or before
        least = max(first, ends[max(0, tokens - _LEAST_TOKENS)])
        if not stands(least):
            end -= 1
            continue
        start = bisect_left(range(least), True, first, key=stands)
        if tokens >= _LEAST_TOKENS or text[start:end] == whole:
            begin = end - len(text[start:end].lstrip())
            spots = _find_spots(text[begin:end], documents, known) if known else ()
            passages.append(Passage(begin, end, spots))
        end = start
    return tuple(passages[::-1])


def _find_spots(text: bytes, documents: Sequence[bytes], known: IndexedFiles) -> tuple[Spot, ...]:
    """The places of a text in files, in order: files that are still as they were come first."""
    paths: dict[bytes, list[str]] = {}
    for path, (_, _, digest) in known.files.items():
        paths.setdefault(digest, []).append(path)
    spots = []
    for digest, document in zip(chain.from_iterable(known.documents), documents, strict=False):
        for at in (found.start() for found in re.finditer(re.escape(text), document)):
            start, end = document.rfind(b"\n", 0, at) + 1, document.find(b"\n", at)
            source = document[start : end if end >= 0 else len(document)].decode("utf-8", "replace")
            line, column = document.count(b"\n", 0, at) + 1, len(document[start:at].decode("utf-8", "replace")) + 1
            for path in paths.get(digest, ()):
                _, _, modified, size = file_stamp(Path(path))
                spots.append(Spot(path, line, column, source, (size, modified) != known.files[path][:2]))
    return tuple(sorted(spots, key=lambda spot: (spot.changed, spot.file, spot.line, spot.column)))

"""Where a text stands in what tables were counted from: the longest passages of it, with files and lines.

In: a text and its ids, tables. Out: passages with their places, or for a table that keeps no texts how many of the
ids its n-grams hold. Passages are found as bytes: a text may begin or end inside a token, and what stands around
it decides how its ends are cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from pathlib import Path

import numpy as np

from ngram_builders.counting.token_cache import IndexedFiles, read_indexed_files
from ngram_builders.ngrams import HIGHEST_ORDER
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table

LEAST_TOKENS = 3  # of a passage, and of an n-gram: everybody writes shorter ones
_MAX_PLACES = 1000  # that are kept of one passage

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
    spots: tuple[Spot, ...]


@dataclass(frozen=True, slots=True)
class Attribution:
    """What one table knows of a text."""

    passages: tuple[Passage, ...] | None  # None: it keeps no texts, or its files are not known here
    held: int  # of the text's tokens: those that end an n-gram of LEAST_TOKENS or more in the table
    longest: int  # of these n-grams


@dataclass(frozen=True, slots=True)
class Query:
    """A text as bytes and ids."""

    text: bytes
    ids: Sequence[int]
    ends: Sequence[int]  # where each id ends in the text, after a 0

    @classmethod
    def of(cls, ids: Sequence[int], decode: Decode) -> Query:
        """The query of some ids."""
        pieces = [decode([one]) for one in ids]
        return cls(b"".join(pieces), ids, [0, *accumulate(map(len, pieces))])


def attribute(query: Query, layers: Sequence[Table], table: NgramTable | None, decode: Decode) -> Attribution:
    """Find what a table knows of a text, from its base and segments."""
    orders = _highest_orders(query.ids, layers)
    held = [order for order in orders if order >= LEAST_TOKENS]
    passages = None
    if layers[0].texts is not None and table is not None:
        contents = read_indexed_files(table.path.parent, table.layers, table.fingerprint)
        if contents is not None:
            documents = _Documents(layers, contents, decode)
            passages = tuple(_find_passages(query, documents))[::-1]
    return Attribution(passages, len(held), max(held, default=0))


def _highest_orders(ids: Sequence[int], layers: Sequence[Table]) -> list[int]:
    """For each id, the length of the longest n-gram of the table that it ends, 0 for none."""
    query = open_query([[layer.columns for layer in layers]], [1.0])
    reach = HIGHEST_ORDER - 1
    padded = np.array([*[-1] * reach, *ids])
    orders = []
    for at in range(len(ids)):
        p, _ = query.probabilities(padded[None, at : at + reach], padded[at + reach : at + reach + 1])
        orders.append(max((order for order, found in enumerate(p[0, :, 0], 2) if found > 0), default=0))
    return orders


class _Documents:
    """The documents of a table as they are now, by their digests."""

    def __init__(self, layers: Sequence[Table], contents: IndexedFiles, decode: Decode) -> None:
        self.contents = contents
        self.texts: dict[bytes, bytes] = {}
        for layer, digests in zip(layers, contents.documents, strict=True):
            documents = layer.texts.documents_forwards() if layer.texts else ()
            for digest, ids in zip(digests, documents, strict=False):
                if digest is not None:
                    self.texts[digest] = decode(ids.tolist())
        self.paths: dict[bytes, list[str]] = {}
        for path, (_, _, digest) in contents.files.items():
            self.paths.setdefault(digest, []).append(path)

    def hold(self, text: bytes, start: int = 0) -> bool:
        """Whether a text stands in any document from `start` on; if so, it does from any later byte on too."""
        return any(text[start:] in document for document in self.texts.values())

    def spots(self, text: bytes) -> tuple[Spot, ...]:
        """The places of a text, in order: files that are still as they were come first."""
        places = (
            spot
            for digest in sorted(self.texts)
            for at in _occurrences(text, self.texts[digest])
            for spot in self._spots_at(digest, at)
        )
        chosen = islice(places, _MAX_PLACES)
        return tuple(sorted(chosen, key=lambda spot: (spot.changed, spot.file, spot.line, spot.column)))

    def _spots_at(self, digest: bytes, at: int) -> Iterator[Spot]:
        """A place in a document, in every file with that text."""
        text = self.texts[digest]
        start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        source = text[start : end if end >= 0 else len(text)].decode("utf-8", "replace")
        column = len(text[start:at].decode("utf-8", "replace")) + 1
        for path in self.paths.get(digest, ()):
            yield Spot(path, text.count(b"\n", 0, at) + 1, column, source, self._has_changed(path))

    def _has_changed(self, path: str) -> bool:
        """Whether a file is not the one that was counted."""
        try:
            status = Path(path).stat()
        except OSError:
            return True
        return (status.st_size, status.st_mtime_ns) != self.contents.files[path][:2]


def _occurrences(text: bytes, document: bytes) -> Iterator[int]:
    """Where a text stands in a document, one behind the other."""
    at = document.find(text)
    while at >= 0:
        yield at
        at = document.find(text, at + len(text))


def _find_passages(query: Query, documents: _Documents) -> Iterator[Passage]:
    """Cover a text from its end with the longest passages that stand in documents; what is in none is left out."""
    text = query.text
    whole = query.text.strip()
    first = text.index(whole)
    end = first + len(whole)
    while end > first:
        tokens = bisect_right(query.ends, end) - 1  # that end there or before
        least = max(first, query.ends[max(0, tokens - LEAST_TOKENS)])
        if not documents.hold(text[least:end]):
            end -= 1
            continue
        start = bisect_left(range(least), True, first, key=partial(documents.hold, text[:end]))
        if tokens >= LEAST_TOKENS or text[start:end] == whole:
            begin = end - len(text[start:end].lstrip())
            yield Passage(begin, end, documents.spots(text[begin:end]))
        end = start

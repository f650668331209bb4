"""Rows of a package's files, each with neighbours before it: what a model that reads a repository is taught with.

Half of the files are one stream of plain text, each below its path; half have gaps, and in the rest of such a row,
at its start, stands a neighbour from the same package.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tokenizers import Tokenizer

from spd_lsp.training.documents import END_ID, TrainingDocument, strip_copyright, with_gaps
from spd_lsp.training.rows import Row, plain_rows

FILE = "<file_sep>"  # stands before a file's path
FILE_ID = 3
_NEIGHBOUR_SHARES = (0.0, 0.25, 0.5)  # of a row; one of them, at random


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a package: its path there, and its text."""

    path: str
    text: str


def read_package(paths: Iterable[Path], folder: Path) -> list[SourceFile]:
    """Read the files of a package, without copyright comments."""
    return [
        SourceFile(path.relative_to(folder).as_posix(), strip_copyright(path.read_text(encoding="utf-8")))
        for path in paths
    ]


def file_ids(file: SourceFile, tokenizer: Tokenizer) -> list[int]:
    """Encode a file below its path, and its end."""
    return [FILE_ID, *tokenizer.encode(f"{file.path}\n{file.text}").ids, END_ID]


def arrange_packages(
    packages: Iterable[Sequence[SourceFile]], tokenizer: Tokenizer, length: int, seed: int
) -> tuple[Iterator[Row], Iterator[Row]]:
    """Return rows of plain text, and rows with gaps, in the order of the packages."""
    rng = random.Random(seed)
    stream = array("H")
    gaps: list[Iterator[Row]] = []
    for files in packages:
        plain = [rng.random() < 0.5 for _ in files]
        encoded = [file_ids(file, tokenizer) for file in files]
        for ids, is_plain in zip(encoded, plain, strict=True):
            if is_plain:
                stream.extend(ids)
        documents = [
            (place, document)
            for place, (file, is_plain) in enumerate(zip(files, plain, strict=True))
            if not is_plain
            for document in with_gaps(file.text, tokenizer, length, rng)
        ]
        gaps.append(rows_with_gaps(documents, encoded, length, rng))
    return plain_rows(stream, length), chain.from_iterable(gaps)


def rows_with_gaps(
    documents: Iterable[tuple[int, TrainingDocument]],
    files: Sequence[Sequence[int]],
    length: int,
    rng: random.Random,
) -> Iterator[Row]:
    """Pack whole documents into rows, each after neighbours of its first one: the files before that, else after.

    documents: each with its file's place among `files`, the encoded files of a package.
    """
    waiting = deque(documents)
    while waiting:
        room = length - int(length * rng.choice(_NEIGHBOUR_SHARES))
        first, document = waiting.popleft()
        last, packed = first, [document]
        while waiting and sum(len(one.ids) for one in packed) + len(waiting[0][1].ids) <= room:
            last, document = waiting.popleft()
            packed.append(document)
        missing = length - sum(len(one.ids) for one in packed)
        head = _neighbours(files, first, last, missing)
        if len(head) < missing:
            return
        measured = [position >= one.middle for one in packed for position in range(len(one.ids))]
        yield Row([*head, *(token for one in packed for token in one.ids)], [False] * missing + measured)


def _neighbours(files: Sequence[Sequence[int]], first: int, last: int, size: int) -> list[int]:
    """Return so many tokens of the files before `first`, the nearest last, or of those after `last`; whole but one."""
    ids: list[int] = []
    for file in (*reversed(files[:first]), *files[last + 1 :]):
        if len(ids) >= size:
            break
        ids = [*file[: size - len(ids)], *ids]
    return ids

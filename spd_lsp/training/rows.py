"""Turn a package's files into rows of token ids: arrays [rows, length] on disk that can be memory-mapped.

Some files are one stream of plain text, each below its path. Others have gaps: such a row holds whole documents,
and before them neighbours, files of the same package. So about half of all tokens are plain.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from spd_lsp.training.documents import TrainingDocument, file_document, strip_copyright, with_gaps

_PLAIN_SHARE = 0.25  # of the files
_NEIGHBOUR_SHARES = (0.0, 0.25, 0.5)  # of a row with gaps; one of them, at random


@dataclass(frozen=True, slots=True)
class Row:
    """One training sequence: ids [length], and which of them count in the held-out loss."""

    ids: list[int]
    measured: list[bool]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a package: its path there, and its text."""

    path: str
    text: str


Package = Sequence[SourceFile]  # sorted by path


def read_texts(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the texts of corpus files."""
    for path in paths:
        yield path.read_bytes().decode("utf-8")


def read_packages(packages: Iterable[Iterable[Path]], folder: Path) -> Iterator[Package]:
    """Yield the files of a language's packages, below its folder, without copyright comments."""
    for paths in packages:
        texts = ((path, path.read_bytes().decode("utf-8")) for path in paths)
        yield [SourceFile(path.relative_to(folder).as_posix(), strip_copyright(text)) for path, text in texts]


def group_by_package(paths: Iterable[Path], folder: Path) -> list[list[Path]]:
    """Sort files of a language into their packages."""
    packages: dict[str, list[Path]] = {}
    for path in sorted(paths):
        packages.setdefault(path.relative_to(folder).parts[0], []).append(path)
    return [*packages.values()]


def arrange(
    packages: Iterable[Package], tokenizer: Tokenizer, length: int, seed: int
) -> tuple[Iterator[Row], Iterator[Row]]:
    """Return rows of plain text, and rows with gaps, in the order of the packages."""
    rng = random.Random(seed)
    stream = array("H")
    rows: list[Iterator[Row]] = []
    for files in packages:
        encoded = [file_document(file.path, file.text, tokenizer).ids for file in files]
        cut = [place for place in range(len(files)) if rng.random() >= _PLAIN_SHARE]
        for place in sorted({*range(len(files))} - {*cut}):
            stream.extend(encoded[place])
        documents = [
            (place, document) for place in cut for document in with_gaps(files[place].text, tokenizer, length, rng)
        ]
        rows.append(gap_rows(documents, encoded, length, rng))
    return _plain_rows(stream, length), chain.from_iterable(rows)


def _plain_rows(stream: array[int], length: int) -> Iterator[Row]:
    """Split the stream into rows; an incomplete last row is dropped."""
    for start in range(0, len(stream) - length + 1, length):
        yield Row(list(stream[start : start + length]), [True] * length)


def gap_rows(
    documents: Iterable[tuple[int, TrainingDocument]],
    files: Sequence[Sequence[int]],
    length: int,
    rng: random.Random,
) -> Iterator[Row]:
    """Pack whole documents into rows, neighbours before them; a row that no neighbours fill is the last.

    documents: each with its file's place among `files`, the encoded files of the package.
    """
    waiting = deque(documents)
    while waiting:
        room = length - int(length * rng.choice(_NEIGHBOUR_SHARES))
        first, document = waiting.popleft()
        last = first
        packed = [document]
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
    """Return so many tokens of the files before `first`, nearest last, or after `last`; the farthest is cut."""
    ids: list[int] = []
    for file in (*reversed(files[:first]), *files[last + 1 :]):
        if len(ids) >= size:
            break
        ids = [*file[: size - len(ids)], *ids]
    return ids


def write_training_rows(
    languages: Iterable[Iterable[Package]], tokenizer: Tokenizer, length: int, seed: int, path: Path
) -> list[int]:
    """Write the training rows of each language, shuffled, as ids [rows, length]. Return their numbers."""
    parts = [
        [np.array(row.ids, dtype=np.uint16) for rows in arrange(texts, tokenizer, length, seed) for row in rows]
        for texts in languages
    ]
    rows = np.stack([row for part in parts for row in part])
    np.random.default_rng(seed).shuffle(rows)
    temporary = path.with_name(f"new.{path.name}")
    np.save(temporary, rows)
    temporary.replace(path)
    return list(map(len, parts))


def write_held_out_rows(
    packages: Iterable[Package], tokenizer: Tokenizer, length: int, seed: int, folder: Path, most: int
) -> None:
    """Write at most this many held-out rows of each kind, plain and with gaps: ids, measured [rows, length]."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arranged in zip(("plain", "gaps"), arrange(packages, tokenizer, length, seed), strict=True):
        rows = list(arranged)
        rows = random.Random(seed).sample(rows, min(most, len(rows)))
        np.save(folder / f"{name}.ids.npy", np.asarray([row.ids for row in rows], dtype=np.uint16))
        np.save(folder / f"{name}.measured.npy", np.asarray([row.measured for row in rows], dtype=np.bool_))

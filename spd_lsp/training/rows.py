"""Turn documents into rows of token ids: arrays [rows, length] on disk that can be memory-mapped.

Half of the tokens are rows of concatenated plain text; half are rows of whole documents with gaps. Files are
ordered by package and name, so a file follows the end of a neighbour in its row.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from spd_lsp.training.documents import TrainingDocument, plain_document, strip_copyright, with_gaps


@dataclass(frozen=True, slots=True)
class Row:
    """One training sequence: ids [length], and which of them count in the held-out loss."""

    ids: list[int]
    measured: list[bool]


def read_texts(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the texts of corpus files."""
    for path in paths:
        yield path.read_bytes().decode("utf-8")


def read_training_texts(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the texts of corpus files as used for training."""
    return map(strip_copyright, read_texts(paths))


def encode(
    texts: Iterable[str], tokenizer: Tokenizer, length: int, seed: int
) -> tuple[array[int], list[TrainingDocument]]:
    """Encode half of the texts as one plain stream, half as documents with gaps, in the order of the texts."""
    rng = random.Random(seed)
    stream = array("H")
    gaps: list[TrainingDocument] = []
    for text in texts:
        if rng.random() < 0.5:
            stream.extend(plain_document(text, tokenizer).ids)
        else:
            gaps += with_gaps(text, tokenizer, length, rng)
    return stream, gaps


def plain_rows(stream: array[int], length: int) -> Iterator[Row]:
    """Split the stream into rows; an incomplete last row is dropped."""
    for start in range(0, len(stream) - length + 1, length):
        yield Row(list(stream[start : start + length]), [True] * length)


def gap_rows(gaps: Iterable[TrainingDocument], filler: Iterator[int], length: int) -> Iterator[Row]:
    """Pack whole documents into rows; space too small for the next one is filled with plain text."""
    waiting = deque(gaps)
    while waiting:
        ids: list[int] = []
        measured: list[bool] = []
        while waiting and len(ids) + len(waiting[0].ids) <= length:
            document = waiting.popleft()
            ids += document.ids
            measured += [position >= document.middle for position in range(len(document.ids))]
        missing = length - len(ids)
        ids += [token for token, _ in zip(filler, range(missing), strict=False)]
        if len(ids) < length:
            return
        yield Row(ids, measured + [False] * missing)


def arrange(
    texts: Iterable[str], tokenizer: Tokenizer, length: int, seed: int
) -> tuple[Iterator[Row], Iterator[Row]]:
    """Return rows of plain text, and rows with gaps. A quarter of the plain stream fills the latter."""
    stream, gaps = encode(texts, tokenizer, length, seed)
    reserved = len(stream) // 4
    return plain_rows(stream[reserved:], length), gap_rows(gaps, iter(stream[:reserved]), length)


def write_training_rows(
    languages: Iterable[Iterable[str]], tokenizer: Tokenizer, length: int, seed: int, path: Path
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


def order_rows(counts: Sequence[int], seed: int, spent: int, share: float) -> NDArray[np.intp]:
    """Return an order of the training rows in which the first language has this share after the spent rows.

    It has the share for as long as it has rows left. counts and seed: those that the rows were written with.
    """
    first = np.repeat(np.arange(len(counts)) == 0, counts)
    np.random.default_rng(seed).shuffle(first)
    left = np.arange(spent, len(first))
    parts = left[first[spent:]], left[~first[spent:]]
    turns = np.concatenate(
        [np.arange(len(part)) / size for part, size in zip(parts, (share, 1 - share), strict=True)]
    )
    return np.concatenate((np.arange(spent), np.concatenate(parts)[np.argsort(turns, kind="stable")]))


def write_held_out_rows(texts: Iterable[str], tokenizer: Tokenizer, length: int, seed: int, folder: Path) -> None:
    """Write the held-out rows, plain and with gaps separately: ids and measured, both [rows, length]."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arranged in zip(("plain", "gaps"), arrange(texts, tokenizer, length, seed), strict=True):
        rows = list(arranged)
        np.save(folder / f"{name}.ids.npy", np.asarray([row.ids for row in rows], dtype=np.uint16))
        np.save(folder / f"{name}.measured.npy", np.asarray([row.measured for row in rows], dtype=np.bool_))

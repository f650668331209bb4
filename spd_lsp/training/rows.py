"""Rows of token ids on disk: documents go in, arrays [rows, length] come out, ready to be memory-mapped.

Half of the tokens are rows of plain text, end to end; half are rows of documents with gaps, none of them broken.
Files come package by package in the order of their names, so before a file in its row stands a neighbour's end.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from spd_lsp.training.documents import TrainingDocument, plain_document, with_gaps, without_rights


@dataclass(frozen=True, slots=True)
class Row:
    """One training sequence: ids [length], and which of them are measured when it is held out."""

    ids: list[int]
    measured: list[bool]


def read(paths: Iterable[Path]) -> Iterator[str]:
    """The texts of the corpus files."""
    for path in paths:
        yield path.read_bytes().decode("utf-8")


def read_learnt(paths: Iterable[Path]) -> Iterator[str]:
    """The texts of the corpus files as they are learnt from."""
    return map(without_rights, read(paths))


def encode(
    texts: Iterable[str], tokenizer: Tokenizer, length: int, seed: int
) -> tuple[array[int], list[TrainingDocument]]:
    """Half of the texts as one plain stream, half as documents with gaps, both in the order of the texts."""
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
    """The stream cut into rows; what is left over at its end is dropped."""
    for start in range(0, len(stream) - length + 1, length):
        yield Row(list(stream[start : start + length]), [True] * length)


def gap_rows(gaps: Iterable[TrainingDocument], filler: Iterator[int], length: int) -> Iterator[Row]:
    """Whole documents side by side; the room that the next one does not fit in is filled with plain text."""
    waiting = deque(gaps)
    while waiting:
        ids: list[int] = []
        measured: list[bool] = []
        while waiting and len(ids) + len(waiting[0].ids) <= length:
            document = waiting.popleft()
            ids += document.ids
            measured += [place >= document.middle for place in range(len(document.ids))]
        missing = length - len(ids)
        ids += [token for token, _ in zip(filler, range(missing), strict=False)]
        if len(ids) < length:
            return
        yield Row(ids, measured + [False] * missing)


def arrange(
    texts: Iterable[str], tokenizer: Tokenizer, length: int, seed: int
) -> tuple[Iterator[Row], Iterator[Row]]:
    """Rows of plain text and rows with gaps. A quarter of the plain stream is set apart to fill these up."""
    stream, gaps = encode(texts, tokenizer, length, seed)
    apart = len(stream) // 4
    return plain_rows(stream[apart:], length), gap_rows(gaps, iter(stream[:apart]), length)


def write_learnt(
    languages: Iterable[Iterable[str]], tokenizer: Tokenizer, length: int, seed: int, path: Path
) -> list[int]:
    """Write the training rows of each language, shuffled, as ids [rows, length]; returned: rows of each."""
    parts = [
        [np.array(row.ids, dtype=np.uint16) for rows in arrange(texts, tokenizer, length, seed) for row in rows]
        for texts in languages
    ]
    rows = np.stack([row for part in parts for row in part])
    np.random.default_rng(seed).shuffle(rows)
    beside = path.with_name(f"new.{path.name}")
    np.save(beside, rows)
    beside.replace(path)
    return list(map(len, parts))


def write_held_out(texts: Iterable[str], tokenizer: Tokenizer, length: int, seed: int, folder: Path) -> None:
    """Write the held-out rows, plain and with gaps apart: ids and measured, both [rows, length]."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in zip(("plain", "gaps"), arrange(texts, tokenizer, length, seed), strict=True):
        rows = list(found)
        np.save(folder / f"{name}.ids.npy", np.asarray([row.ids for row in rows], dtype=np.uint16))
        np.save(folder / f"{name}.measured.npy", np.asarray([row.measured for row in rows], dtype=np.bool_))

"""N-grams that a program names itself: token ids to count, and files of tables.

Knows no registry, no text and no tokenizer: whoever passes ids made them with the model's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, count_streams
from ngram_builders.table.format import Columns
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import build_columns
from spd_lsp.ngrams.mixture import Mixture

FileName = str | os.PathLike[str]
NamedNgrams = FileName | Sequence[FileName | Sequence[int]]


def open_mixture(named: NamedNgrams, vocabulary: int, weight: float = 1.0) -> Mixture | None:
    """The n-grams of token ids and of files, for a model with this many tokens; None if there are none."""
    parts = [named] if isinstance(named, (str, os.PathLike)) else list(named)
    pools = list(_pools(parts, vocabulary))
    if not pools:
        return None
    return Mixture([[columns] for columns in pools], [1 / len(pools)] * len(pools)).adjusted(weight, ORDERS[-1])


def _pools(parts: Sequence[Any], vocabulary: int) -> Iterator[Columns]:
    """The counts of each file, and those of all token ids together."""
    for part in parts:
        if isinstance(part, (str, os.PathLike)):
            yield _open_table(Path(part), vocabulary)
    texts = [np.asarray(part, dtype=np.int64) for part in parts if not isinstance(part, (str, os.PathLike))]
    if texts:
        yield build_columns(count_streams(texts, orders=ORDERS, vocab_size=vocabulary), vocabulary)


def _open_table(path: Path, vocabulary: int) -> Columns:
    columns = Table.open(path).columns
    if columns.vocab_size > vocabulary:
        raise UserError(
            f"{path} counts {columns.vocab_size:,} tokens, but the model has {vocabulary:,}: they belong to "
            "different models; build the table with `spd-lsp build-ngrams --model` and this one"
        )
    return columns

"""The n-grams that a program names itself: files of tables, and token ids to count."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ngram_builders.errors import UserError
from ngram_builders.index.mixture import ORDERS, Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.index.table_file import Table

FileName = str | os.PathLike[str]
NamedNgrams = FileName | Sequence[FileName | Sequence[int]]  # files of tables, and token ids to count


def open_mixture(named: NamedNgrams, vocabulary: int, weight: float = 1.0) -> Mixture | None:
    """The n-grams that a program names itself, for a model with this many tokens; None if there are none.

    Token ids are those of the model's own tokenizer.
    """
    parts = [named] if isinstance(named, (str, os.PathLike)) else named
    pools, texts = [], []
    for part in parts:
        if not isinstance(part, (str, os.PathLike)):
            texts.append(ids := np.asarray(part, dtype=np.int64))
            if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
                raise UserError(f"token ids are from 0 to {vocabulary - 1}, not {ids.min()} to {ids.max()}")
            continue
        table = Table.open(Path(part))
        if table.summary.vocab_size > vocabulary:
            raise UserError(
                f"{part} has {table.summary.vocab_size:,} tokens, but the model has {vocabulary:,}: they belong "
                "to different models; build the table with `spd-lsp build-ngrams --model` and this one"
            )
        pools.append(table.array)
    if texts:
        pools.append(build_suffix_array(texts))
    if not pools:
        return None
    weights = [1 / len(pools)] * len(pools)
    return Mixture([[Signed(array)] for array in pools], weights).adjusted(weight, ORDERS[-1])

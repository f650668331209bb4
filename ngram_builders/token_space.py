"""The token ids that a table and a model must share to understand each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import I64, Ints


@dataclass(frozen=True, slots=True)
class TokenSpace:
    """A tokenizer's ids, as tables and models compare them."""

    fingerprint: str  # of the tokenizer
    vocab_size: int
    end_of_text: int


def with_boundaries(ids: Sequence[int] | Ints, end_of_text: int) -> I64:
    """Return a document as it is counted, between two end-of-text tokens: how files begin and end counts too.

    Example: [5, 7], 0 -> [0, 5, 7, 0]
    """
    return np.concatenate(([end_of_text], ids, [end_of_text])).astype(np.int64)

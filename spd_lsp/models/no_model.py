"""No model: every token is as likely as any other, so that n-grams, copies and names alone are offered.

Legend: V vocabulary, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine, ForwardInput

_POSITIONS = 1 << 20
_SLIGHTLY = 1e-3


class NoModel(Engine):
    """An engine that computes nothing."""

    predicts = False

    def __init__(self, vocabulary: int, end_of_text: int) -> None:
        self.max_positions = _POSITIONS
        self.device = "none"
        self.logits = np.zeros(vocabulary, np.float32)  # [V]
        self.logits[end_of_text] = _SLIGHTLY  # the likeliest token by a little: an end is better than any guess
        self.end_of_text = end_of_text
        super().__init__()

    def new_cache(self) -> NoCache:
        """As in `Engine`."""
        return NoCache()

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`."""
        found: list[Floats] = []
        for each in inputs:
            is_mixed = each.weights is not None
            each.cache.length += 1 if is_mixed else len(each.ids)
            rows = 1 if each.last_only else len(each.ids)
            found.append(self.logits if is_mixed else np.broadcast_to(self.logits, (rows, len(self.logits))))
        return found


class NoCache:
    """A cache that only counts its positions."""

    def __init__(self, length: int = 0) -> None:
        self.length = length

    def crop(self, length: int) -> None:
        """As in `Cache`."""
        self.length = min(self.length, length)

    def fork(self, length: int) -> NoCache:
        """As in `Cache`."""
        return NoCache(length)

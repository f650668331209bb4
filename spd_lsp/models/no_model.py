"""No model: every token is as likely as any other, so that what is offered comes from n-grams, copies and names.

V vocabulary, N rows, T positions.
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
    forks_are_free = True

    def __init__(self, vocabulary: int, end_of_text: int) -> None:
        self.max_positions = _POSITIONS
        self.device = "none"
        self.logits = np.zeros(vocabulary, np.float32)  # [V]
        self.logits[end_of_text] = _SLIGHTLY  # more likely: of all, the one that says nothing
        self.end_of_text = end_of_text
        super().__init__()

    def new_cache(self) -> NoCache:
        """As in `Engine`."""
        return NoCache()

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`."""
        return [self._logits_for(each) for each in inputs]

    def _logits_for(self, each: ForwardInput) -> Floats:
        rows = each.ids or each.mixtures
        positions = len(each.ids[0]) if each.ids else 1
        each.cache.length += positions
        wanted = (len(rows), 1 if each.last_only else positions) if each.ids else (len(rows),)
        return np.broadcast_to(self.logits, (*wanted, len(self.logits)))


class NoCache:
    """Remembers how much was read, and nothing of it."""

    def __init__(self, length: int = 0) -> None:
        self.length = length

    def crop(self, length: int) -> None:
        """As in `Cache`."""
        self.length = min(self.length, length)

    def fork(self, length: int) -> NoCache:
        """As in `Cache`."""
        return NoCache(length)

    def select_rows(self, parents: Sequence[int]) -> NoCache:
        """As in `Cache`."""
        return NoCache(self.length)

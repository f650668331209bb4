"""Memories of several prompts as one, so that one pass reads positions of all of them.

The products with the weights, which cost a pass its time, see one tall matrix; attention stays with each memory.
Their lengths may differ. Knows nothing of weights.

Legend: M new positions in all, M_i of memory i; G key heads, Q query heads a key head, C width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ngram_builders.arrays import I64, Floats
from spd_lsp.models.numpy.kv_cache import EVERYTHING, Memory


class Together:
    """Several memories, each with its share of the new positions."""

    def __init__(self, members: Sequence[Memory], counts: Sequence[int]) -> None:
        ends = list(accumulate(counts))
        self.members = [
            (memory, count, slice(end - count, end))
            for memory, count, end in zip(members, counts, ends, strict=True)
        ]

    def reserve(self, count: int) -> I64:
        """As in `Memory`."""
        return np.concatenate([memory.reserve(own) for memory, own, _ in self.members])

    def attend(
        self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = EVERYTHING
    ) -> Floats:
        """As in `Memory`: M_i rows of queries, keys and values to each, in order. -> [M, G Q C]."""
        found: Floats = np.concatenate(
            [memory.attend(layer, queries[own], keys[own], values[own], window) for memory, _, own in self.members]
        )
        return found

    def advance(self, count: int) -> None:
        """As in `Memory`."""
        for memory, own, _ in self.members:
            memory.advance(own)

"""Caches whose keys and values llama.cpp keeps: one sequence of a context, or one for each of several rows.

What two sequences have in common is stored once, so that forks and rows cost nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from spd_lsp.models.llama.context import LlamaContext


class SequenceCache:
    """The positions of one sequence."""

    def __init__(self, context: LlamaContext) -> None:
        self.context = context
        self.sequence = context.new_sequence()
        self.length = 0
        weakref.finalize(self, context.drop_sequence, self.sequence)

    @property
    def rows(self) -> list[SequenceCache]:
        """The sequences that one more position of each row is added to."""
        return [self]

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on."""
        self.length = min(self.length, length)
        self.context.crop(self.sequence, self.length)

    def fork(self, length: int) -> SequenceCache:
        """Another sequence with the same first positions."""
        forked = SequenceCache(self.context)
        forked.length = length
        self.context.copy(self.sequence, forked.sequence, length)
        return forked

    def select_rows(self, parents: Sequence[int]) -> SequenceRows:
        """As many rows as there are parents, all of which continue this one."""
        return SequenceRows([self.fork(self.length) for _ in parents])


class SequenceRows:
    """Several sequences of the same length, which a pass reads together."""

    def __init__(self, rows: list[SequenceCache]) -> None:
        self.rows = rows

    def select_rows(self, parents: Sequence[int]) -> SequenceRows:
        """Row i becomes what row `parents[i]` is now; the first heir of a row keeps its sequence."""
        inherited: set[int] = set()
        heirs = []
        for parent in parents:
            row = self.rows[parent]
            heirs.append(row.fork(row.length) if parent in inherited else row)
            inherited.add(parent)
        return SequenceRows(heirs)

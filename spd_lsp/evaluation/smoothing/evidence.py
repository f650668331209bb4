"""What tables say of one history, as counts of every token: all that any rule of smoothing could ask.

In: pools of columns, a history. Out: counts by pool and order. Slow and plain, in numpy; knows no models.

Dimensions: W pools, O orders from 2 on, V vocabulary; counts are looked at in three classes: 1, 2, and 3 or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ngram_builders.counts import ORDERS
from ngram_builders.kernel import Query
from ngram_builders.lookup import Found, exact_counts, locate_all, pooled_totals
from spd_lsp.interpolation import LONGEST, last_tokens

Floats = npt.NDArray[np.floating[Any]]

WIDTH = len(ORDERS)  # orders that tables hold
CLASSES = 3


@dataclass(frozen=True)
class Evidence:
    """How often each token followed the ends of one history, and what the pools weigh."""

    counts: Floats  # [W, O, V]
    totals: Floats  # [W, O] with what was pruned
    weights: Floats  # [W]

    @cached_property
    def shares(self) -> Floats:
        """What each pool says in an order: its weight among those that have seen the context. [W, O]"""
        heard = self.weights[:, None] * (self.totals > 0)
        return np.asarray(heard / np.maximum(heard.sum(axis=0), 1e-9))

    @cached_property
    def p(self) -> Floats:
        """The pools' mean likelihood of each token, by order; 0 where the context is new. [O, V]"""
        parts = (self.shares / np.maximum(self.totals, 1)).astype(np.float32)
        return np.asarray((parts[:, :, None] * self.counts).sum(axis=0))

    @property
    def highest(self) -> int:
        """The highest order whose context was seen, from 1 on; 0 if none was."""
        return int(((self.totals > 0).any(axis=0) * np.arange(1, WIDTH + 1)).max())

    def classes(self, chosen: npt.NDArray[np.bool_] | None = None) -> Floats:
        """Of some tokens or all: the sum of counts, and how many were counted 1, 2, or more times. [W, O, 4]"""
        counts = self.counts if chosen is None else self.counts[:, :, chosen]
        found = [
            counts.sum(axis=2),
            (counts == 1).sum(axis=2),
            (counts == 2).sum(axis=2),
            (counts > 2).sum(axis=2),
        ]
        return np.stack(found, axis=2).astype(np.float64)


def evidence_of(query: Query, history: Sequence[int] | Any, vocab_size: int) -> Evidence:
    """Look a history up in the pools of a query."""
    contexts = last_tokens([history], LONGEST)
    slots = contexts.shape[0] * LONGEST
    counts = np.zeros((len(query.pools), WIDTH, vocab_size), dtype=np.float32)
    totals = np.zeros((len(query.pools), WIDTH))
    for w, pool in enumerate(query.pools):
        found = locate_all(pool, contexts)
        totals[w] = np.maximum(pooled_totals(found, slots)[:WIDTH], 0)
        for one in found:
            add(counts[w], one)
    np.maximum(counts, 0, out=counts)
    return Evidence(counts, totals, np.array(query.weights))


def add(counts: Floats, found: Found) -> None:
    """Add what one table holds. counts [O, V]"""
    for slot, start, width in zip(found.slots, found.starts, found.widths, strict=True):
        places = np.arange(start, start + width)
        tokens = found.columns.tokens.take(places).astype(np.int64)
        known = tokens < counts.shape[1]
        counts[slot, tokens[known]] += exact_counts(found.columns, places)[known]

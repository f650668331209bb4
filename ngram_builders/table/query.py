"""The query of tables: by the compiled kernel.c where there is one, else by numpy, with the same numbers.

Dimensions: W pools, K drafts, L tokens of context, C candidates, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ngram_builders.arrays import F32, F64, I64, Floats, Ints
from ngram_builders.table import numpy_query
from ngram_builders.table.kernel import CompiledQuery, load_kernel
from ngram_builders.table.numpy_query import Pools


class Query(Protocol):
    """Pools of columns with weights, to be queried any number of times by any number of threads.

    contexts [K, L] are the drafts' last tokens, the newest last, -1 where shorter.
    """

    def probabilities(self, contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
        """Return p [K, 8, C] of the candidates by order, and the matched weight [K, 8]: see `numpy_query`."""

    def successors(self, contexts: Ints, n: int) -> I64:
        """Return the n commonest tokens of each pool after each context, sorted: see `numpy_query`."""

    def mix(self, contexts: Ints, candidates: Ints, p: Floats, order_weights: F64) -> F64:
        """Return probabilities p, [C] or [K, C], of candidates, each once, mixed with the pools' [K, C].

        order_weights by the longest context matched, [W, 9, 8], or [9, 8] of all pools: see `numpy_query`.
        """

    def mix_candidates(self, contexts: Ints, p: F32, n: int, order_weights: F64) -> tuple[I64, F64]:
        """Return candidates of model and pools [C] and their mixed probabilities [K, C]; p [V] is contiguous."""


def open_query(pools: Pools, weights: Sequence[float]) -> Query:
    """Return the query of these pools; those of weight 0 are left out."""
    kept = [(tuple(pool), float(weight)) for pool, weight in zip(pools, weights, strict=True) if weight > 0]
    columns, positive_weights = [pool for pool, _ in kept], [weight for _, weight in kept]
    if library := load_kernel().library:
        return CompiledQuery(library, columns, positive_weights)
    return _NumpyQuery(columns, positive_weights)


class _NumpyQuery:
    """The functions of `numpy_query` for fixed pools."""

    def __init__(self, pools: Pools, weights: Sequence[float]) -> None:
        self.pools = pools
        self.weights = weights

    def probabilities(self, contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
        return numpy_query.probabilities(self.pools, self.weights, contexts, candidates)

    def successors(self, contexts: Ints, n: int) -> I64:
        return numpy_query.successors(self.pools, contexts, n)

    def mix(self, contexts: Ints, candidates: Ints, p: Floats, order_weights: F64) -> F64:
        return numpy_query.mix(self.pools, self.weights, contexts, candidates, p, order_weights)

    def mix_candidates(self, contexts: Ints, p: F32, n: int, order_weights: F64) -> tuple[I64, F64]:
        return numpy_query.mix_candidates(self.pools, self.weights, contexts, p, n, order_weights)

"""The query of tables as its users hold it: by the compiled kernel.c where there is one, by numpy where not.

Dimensions: K drafts, L tokens of context, C candidates, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

from ngram_builders.arrays import F32, F64, I64, Ints
from ngram_builders.table import numpy_query
from ngram_builders.table.kernel import CompiledQuery, load_kernel
from ngram_builders.table.numpy_query import Pools
from ngram_builders.table.shared_library import is_disabled


class Query:
    """Pools of columns, ready to be asked any number of times, by any number of threads.

    A pool of weight 0 is not asked.
    """

    def __init__(self, pools: Pools, weights: Sequence[float]) -> None:
        asked = [(tuple(pool), float(weight)) for pool, weight in zip(pools, weights, strict=True) if weight > 0]
        self.pools = [pool for pool, _ in asked]
        self.weights = [weight for _, weight in asked]
        library = None if is_disabled() else load_kernel().library
        self.compiled = CompiledQuery(library, self.pools, self.weights) if library else None

    def probabilities(self, contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
        """How likely each candidate is after each context, by order: see `numpy_query.mean`.

        contexts [K, L], the newest token rightmost, -1 where shorter; candidates [C] -> p [K, 8, C], heard [K, 8].
        """
        if self.compiled:
            return self.compiled.probabilities(contexts, candidates)
        return numpy_query.probabilities(self.pools, self.weights, contexts, candidates)

    def successors(self, contexts: Ints, n: int) -> I64:
        """The n commonest tokens of each pool after each context [K, L], sorted: see `numpy_query.successors`."""
        if self.compiled:
            return self.compiled.successors(contexts, n)
        return numpy_query.successors(self.pools, contexts, n)

    def mix_candidates(self, contexts: Ints, p: F32, n: int, weights: F64) -> tuple[I64, F64]:
        """Candidates of model and pools, and their probabilities mixed: see `numpy_query.nested`.

        contexts [K, L], p [V] contiguous, weights [9, 8] by the highest order heard -> ids [C], p_f [K, C].
        """
        if self.compiled:
            return self.compiled.mix_candidates(contexts, p, n, weights)
        return numpy_query.mix_candidates(self.pools, self.weights, contexts, p, n, weights)

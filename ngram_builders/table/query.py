"""How likely tokens are after contexts: pools of columns in the structures of kernel.c, and its functions.

Whatever is read from the columns and used as an index is first brought within its array: a damaged file gives
wrong numbers and no error.

Dimensions: W pools, K drafts, L tokens of context, O orders from 2 to the highest, C candidates, V vocabulary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from ngram_builders.arrays import F32, F64, I64, Floats, Ints
from ngram_builders.ngrams import HIGHEST_ORDER, hash_bits, other
from ngram_builders.table.format import BLOCK_ROWS, POINTERS, SECTION_DTYPES, Columns
from ngram_builders.table.kernel import load_kernel

Pools = Sequence[Sequence[Columns]]

ORDER_COUNT = HIGHEST_ORDER - 1
SLICE_WORDS = 4  # as rows.h has it


class _Segment(ctypes.Structure):
    """One set of columns, as rows.h declares it."""

    _fields_ = (
        *((f"{name}_address", ctypes.c_uint64) for name in SECTION_DTYPES),
        *((name, ctypes.c_int64) for name in ("rows", "entries", "stored", "overflows", "wides")),
        ("base", ctypes.c_int64 * ORDER_COUNT),
        ("shift", ctypes.c_int64 * ORDER_COUNT),
        *((name, ctypes.c_int64) for name in ("hash_shift", "other", "token_size", "count_size")),
    )


class _Pool(ctypes.Structure):
    """Segments whose counts add up."""

    _fields_ = (("weight", ctypes.c_double), ("first", ctypes.c_int64), ("end", ctypes.c_int64))


class _Tables(ctypes.Structure):
    """All segments and pools."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("segments", "pools")),
        *((name, ctypes.c_int64) for name in ("pool_count", "segment_count")),
    )


def open_query(pools: Pools, weights: Sequence[float]) -> Query:
    """Return the query of these pools; those of weight 0 are left out."""
    kept = [(pool, float(weight)) for pool, weight in zip(pools, weights, strict=True) if weight > 0]
    return Query(load_kernel(), [pool for pool, _ in kept], [weight for _, weight in kept])


class Query:
    """Pools of columns with weights, to be queried any number of times by any number of threads.

    Counts within a pool add up. contexts [K, L] are the drafts' last tokens, the newest last, -1 where the history
    is shorter.
    """

    def __init__(self, library: ctypes.CDLL, pools: Pools, weights: Sequence[float]) -> None:
        self.library = library
        self.columns = [columns for pool in pools for columns in pool]  # kept alive: segments hold their addresses
        self.segments = (_Segment * len(self.columns))(*map(_segment, self.columns))
        ends = np.cumsum([len(pool) for pool in pools], dtype=int).tolist()
        firsts = [end - len(pool) for end, pool in zip(ends, pools, strict=True)]
        self.pools = (_Pool * len(ends))(*map(_Pool, weights, firsts, ends))
        addresses = (ctypes.addressof(self.segments), ctypes.addressof(self.pools))
        self.tables = _Tables(*addresses, len(ends), len(self.columns))
        self.address = ctypes.addressof(self.tables)
        self.max_tokens = max((other(columns.vocab_size) for columns in self.columns), default=0)

    def probabilities(self, contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
        """Return how likely each candidate is after each context, p [K, O, C], and the matched weight [K, O].

        p is the weighted mean of count / total over the pools that have seen the context; matched is the sum of
        their weights. A context that no pool has seen has p = 0 and matched = 0. Candidates may be anything: p = 0
        for what no table can hold.
        """
        contexts = _as_ids(contexts)
        candidates = _as_ids(candidates)
        p = np.zeros((len(contexts), ORDER_COUNT, len(candidates)))
        matched, scratch = self._memory(len(contexts))
        self.library.probabilities(
            self.address, *contexts.shape, contexts, len(candidates), candidates, p, matched, scratch
        )
        return p, matched

    def successors(self, contexts: Ints, n: int) -> I64:
        """Return the tokens that commonly followed the contexts, sorted, each once.

        Of each pool and context the n commonest, of equally common ones the lowest, after the longest end of the
        context that the pool knows a successor of.
        """
        contexts = _as_ids(contexts)
        n = max(0, min(n, self.max_tokens))
        ids = np.empty(len(self.pools) * len(contexts) * n, dtype=np.int64)
        if not len(ids):
            return ids
        count = self.library.successors(
            self.address, *contexts.shape, contexts, n, ids, *self._memory(len(contexts), n)
        )
        found: I64 = ids[:count]
        return found

    def mix(self, contexts: Ints, candidates: Ints, p: Floats, order_weights: F64) -> F64:
        """Return a model's probabilities p, [C] or [K, C], of candidates mixed with those of the pools, [K, C].

        Mixed is (1 - sum_o w[o]) p + sum_o w[o] p_o, with p_o from `probabilities`. w is row m of the order
        weights [W, O + 1, O], or [O + 1, O] of all pools, m the length of the longest context matched: the mean
        of the pools that know it, by their share in the matched weight. A matched weight below 1 gives only so
        much of that row; the rest is of shorter contexts that more weight has matched, and of a row of zeros.
        """
        contexts = _as_ids(contexts)
        candidates = _as_ids(candidates)
        mixed = np.empty((len(contexts), len(candidates)))
        mixed[:] = p
        weights = self._order_weights(order_weights)
        memory = self._memory(len(contexts))
        self.library.mix(
            self.address, *contexts.shape, contexts, len(candidates), candidates, weights, mixed, *memory
        )
        return mixed

    def mix_candidates(self, contexts: Ints, p: F32, n: int, order_weights: F64) -> tuple[I64, F64]:
        """Return candidates of a model and of the pools, [C], and what `mix` makes of their probabilities, [K, C].

        p [V], contiguous, is the model's probability, below 0 for tokens that must not follow. The candidates are
        its n likeliest and `successors`.
        """
        contexts = _as_ids(contexts)
        n = max(0, min(n, len(p)))
        max_ids = n + len(self.pools) * len(contexts) * n
        ids = np.empty(max_ids, dtype=np.int64)
        mixed = np.empty(len(contexts) * max_ids)
        weights = self._order_weights(order_weights)
        memory = self._memory(len(contexts), n)
        count = n and self.library.mix_candidates(
            self.address, *contexts.shape, contexts, len(p), p, n, weights, ids, mixed, *memory
        )
        return ids[:count], mixed[: len(contexts) * count].reshape(len(contexts), count)

    def _memory(self, drafts: int, n: int = 0) -> tuple[F64, I64]:
        """The matched weight [K, O], and memory for `match_contexts` in rows.h and for n successors."""
        matched = np.zeros((drafts, ORDER_COUNT))
        rows = SLICE_WORDS * len(self.segments)
        return matched, np.empty(matched.size * (1 + rows + len(self.pools)) + rows + 2 * n, dtype=np.int64)

    def _order_weights(self, order_weights: F64) -> F64:
        """The order weights of each pool."""
        shape = (len(self.pools), ORDER_COUNT + 1, ORDER_COUNT)
        return np.ascontiguousarray(np.broadcast_to(order_weights, shape), dtype=np.float64)


def _as_ids(ids: Ints) -> I64:
    """Ids as the kernel reads them."""
    return np.ascontiguousarray(ids, dtype=np.int64)


def _segment(columns: Columns) -> _Segment:
    """The structure of one set of columns; of lengths that disagree the shorter counts."""
    arrays: dict[str, Ints] = {name: getattr(columns, name) for name in SECTION_DTYPES}
    assert all(one.dtype.str in SECTION_DTYPES[name] and one.flags.c_contiguous for name, one in arrays.items())
    base, shift = _directory_shifts(columns)
    sizes = {name: len(array) for name, array in arrays.items()}
    return _Segment(
        *(array.ctypes.data for array in arrays.values()),
        max(0, min(sizes["heads"], (sizes["pointers"] // POINTERS - 1) * BLOCK_ROWS)),
        sizes["tokens"],
        sizes["counts"],
        min(sizes["overflow_places"], sizes["overflow_counts"]),
        min(sizes["wide_widths"], sizes["wide_totals"]),
        tuple(base),
        tuple(shift),
        64 - hash_bits(columns.vocab_size),
        other(columns.vocab_size),
        columns.tokens.itemsize,
        columns.counts.itemsize,
    )


def _directory_shifts(columns: Columns) -> tuple[list[int], list[int]]:
    """Where each order's directory begins, and how far a hash is shifted to be an index into it.

    The shift is -1 where there is no such order, or its directory would reach beyond the array.
    """
    base = [0] * ORDER_COUNT
    shift = [-1] * ORDER_COUNT
    hashed = hash_bits(columns.vocab_size)
    for order, (start, bits) in columns.orders.items():
        fits = 0 <= bits <= hashed and start >= 0 and start + 2**bits + 1 <= len(columns.directory)
        if fits and 2 <= order <= HIGHEST_ORDER:
            base[order - 2] = start
            shift[order - 2] = hashed - bits
    return base, shift

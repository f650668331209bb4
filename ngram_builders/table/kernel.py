"""The compiled kernel.c, called without Python's lock: pools of columns in its structures, and its functions.

A plain C library (shared_library.py), so it fits every Python. SPD_LSP_KERNEL=0 turns it off.

Dimensions: K drafts, L tokens of context, C candidates, V vocabulary.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ngram_builders.arrays import F32, F64, I64, Floats, Ints
from ngram_builders.ngrams import count_streams, hash_bits, negate, other
from ngram_builders.table import numpy_query, shared_library
from ngram_builders.table.format import COUNT_OVERFLOW, SECTION_DTYPES, Columns
from ngram_builders.table.numpy_query import ORDER_COUNT, Pools
from ngram_builders.table.writer import build_columns

log = logging.getLogger(__name__)

_SLICE_WORDS = 4  # as rows.h has it


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


class CompiledQuery:
    """Pools in the kernel's structures. Each call allocates its own memory, so threads do not interfere."""

    def __init__(self, library: ctypes.CDLL, pools: Pools, weights: Sequence[float]) -> None:
        self.library = library
        columns = [columns for pool in pools for columns in pool]
        self.arrays = [_native_arrays(one) for one in columns]  # kept alive: the structures hold their addresses
        self.segments = (_Segment * len(columns))(*map(_segment, columns, self.arrays))
        ends = np.cumsum([len(pool) for pool in pools], dtype=int).tolist()
        firsts = [end - len(pool) for end, pool in zip(ends, pools, strict=True)]
        self.pools = (_Pool * len(ends))(*map(_Pool, weights, firsts, ends))
        addresses = (ctypes.addressof(self.segments), ctypes.addressof(self.pools))
        self.tables = _Tables(*addresses, len(ends), len(columns))
        self.address = ctypes.addressof(self.tables)
        self.max_tokens = max((other(one.vocab_size) for one in columns), default=0)

    def _match_words(self, drafts: int) -> int:
        """How many 8-byte words `match_contexts` in rows.h needs, `matched` included."""
        return drafts + drafts * ORDER_COUNT * (2 + _SLICE_WORDS * len(self.segments) + len(self.pools))

    def probabilities(self, contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
        """See `Query.probabilities`."""
        (drafts, length), choices = contexts.shape, len(candidates)
        slots = drafts * ORDER_COUNT
        results = slots * (choices + 1)
        inputs = results + drafts * length
        scratch = (len(self.segments) + 6) * choices + self._match_words(drafts)
        block = np.zeros(inputs + choices + scratch)
        words = block.view(np.int64)
        words[results:inputs] = contexts.reshape(-1)
        words[inputs : inputs + choices] = candidates
        self.library.probabilities(self.address, drafts, length, choices, block.ctypes.data)
        p = block[: slots * choices].reshape(drafts, ORDER_COUNT, choices)
        return p, block[slots * choices : results].reshape(drafts, ORDER_COUNT)

    def successors(self, contexts: Ints, n: int) -> I64:
        """See `Query.successors`."""
        (drafts, length), n = contexts.shape, min(n, self.max_tokens)
        if n <= 0:
            return np.empty(0, dtype=np.int64)
        inputs, max_ids = drafts * length, len(self.pools) * drafts * n
        scratch = max_ids + _SLICE_WORDS * len(self.segments) + 2 * n + self._match_words(drafts)
        block = np.empty(inputs + max_ids + scratch, dtype=np.int64)
        block[:inputs] = contexts.reshape(-1)
        count = self.library.successors(self.address, drafts, length, n, block.ctypes.data)
        ids: I64 = block[inputs : inputs + count].copy()
        return ids

    def _order_weights(self, order_weights: F64) -> F64:
        """The order weights of each pool, one behind the other."""
        if order_weights.ndim == 3 and len(order_weights) == len(self.pools):
            return order_weights.reshape(-1)
        return np.broadcast_to(order_weights, (len(self.pools), *order_weights.shape[-2:])).reshape(-1)

    def mix(self, contexts: Ints, candidates: Ints, p: Floats, order_weights: F64) -> F64:
        """See `Query.mix`."""
        (drafts, length), choices = contexts.shape, len(candidates)
        of_pools = self._order_weights(order_weights)
        inputs = drafts * choices
        weights = inputs + drafts * length + choices
        scratch = (len(self.segments) + 6) * choices + self._match_words(drafts)
        block = np.empty(weights + len(of_pools) + scratch)
        words = block.view(np.int64)
        block[:inputs].reshape(drafts, choices)[:] = p
        words[inputs : weights - choices] = contexts.reshape(-1)
        words[weights - choices : weights] = candidates
        block[weights : weights + len(of_pools)] = of_pools
        self.library.mix(self.address, drafts, length, choices, block.ctypes.data)
        return block[:inputs].reshape(drafts, choices)

    def mix_candidates(self, contexts: Ints, p: F32, n: int, order_weights: F64) -> tuple[I64, F64]:
        """See `Query.mix_candidates`."""
        (drafts, length), n = contexts.shape, min(n, len(p))
        if n <= 0:
            return np.empty(0, dtype=np.int64), np.empty(0).reshape(drafts, 0)
        max_ids = n + len(self.pools) * drafts * n
        inputs, of_pools = drafts * length, self._order_weights(order_weights)
        results = inputs + len(of_pools)
        scratch = (len(self.segments) + 6) * max_ids + _SLICE_WORDS * len(self.segments) + 2 * n
        scratch += self._match_words(drafts)
        block = np.empty(results + (1 + drafts) * max_ids + scratch)
        words = block.view(np.int64)
        words[:inputs] = contexts.reshape(-1)
        block[inputs:results] = of_pools
        arguments = (self.address, drafts, length, n, p.ctypes.data, len(p), block.ctypes.data)
        count = self.library.mix_candidates(*arguments)
        start = results + max_ids
        return words[results : results + count], block[start : start + drafts * count].reshape(drafts, count)


def _native_arrays(columns: Columns) -> dict[str, Ints]:
    """The arrays in the types that the kernel reads; those of a file or of `build_columns` already are."""
    types = {
        "tokens": "<u2" if columns.tokens.itemsize == 2 else "<u4",
        "counts": "|u1" if columns.counts.itemsize == 1 else "<i4",
        "wide_totals": "<i8",
    }
    return {
        name: np.require(getattr(columns, name), types.get(name, "<u4"), ["C", "A"]) for name in SECTION_DTYPES
    }


def _segment(columns: Columns, arrays: dict[str, Ints]) -> _Segment:
    """The structure of one set of columns; of lengths that disagree the shorter counts."""
    base, shift = numpy_query.directory_shifts(columns)
    sizes = {name: len(array) for name, array in arrays.items()}
    return _Segment(
        *(array.ctypes.data for array in arrays.values()),
        numpy_query.row_count(columns),
        sizes["tokens"],
        sizes["counts"],
        min(sizes["overflow_places"], sizes["overflow_counts"]),
        min(sizes["wide_widths"], sizes["wide_totals"]),
        tuple(base.tolist()),
        tuple(shift.tolist()),
        64 - hash_bits(columns.vocab_size),
        other(columns.vocab_size),
        arrays["tokens"].itemsize,
        arrays["counts"].itemsize,
    )


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """The compiled kernel, or why there is none."""

    library: ctypes.CDLL | None
    reason: str = ""


def load_kernel() -> LoadedKernel:
    """Return the compiled kernel, or why queries run without it, some ten times slower."""
    if shared_library.is_disabled():
        return LoadedKernel(None, f"{shared_library.KERNEL_VARIABLE}=0 is set")
    return _load_checked()


@cache
def _load_checked() -> LoadedKernel:
    """Load and try the kernel once. A broken one is logged."""
    if not shared_library.LIBRARY.exists():
        return LoadedKernel(None, "it was not compiled when the package was installed")
    try:
        library = shared_library.open_library(shared_library.LIBRARY)
        check_kernel(library)
    except ValueError as error:
        log.warning("n-gram queries run without the compiled kernel, slower: %s", error)
        return LoadedKernel(None, str(error))
    return LoadedKernel(library)


def check_kernel(library: ctypes.CDLL) -> None:
    """Raise ValueError if the library disagrees with numpy about a small table."""
    weights = (0.3, 0.7)
    order_weights = np.tri(ORDER_COUNT + 1, ORDER_COUNT, -1) * np.array([0.1, 0.05])[:, None, None]  # of each pool
    contexts = np.array([[-1, -1, 3, 1], [2, 1, 2, 0], [0, 9, 0, 5], [9, 9, 9, 9], [-1, -1, -1, 0]])
    for vocab_size in (50, 70_000):
        pools = _small_pools(vocab_size)
        candidates = np.array([5, 1, 0, 1, 77_777, -1, vocab_size - 1])
        p = np.linspace(-0.1, 0.3, vocab_size, dtype=np.float32)[::-1].copy()
        compiled = CompiledQuery(library, pools, weights)
        ids, mixed = compiled.mix_candidates(contexts, p, 6, order_weights)
        expected_ids, expected_mixed = numpy_query.mix_candidates(pools, weights, contexts, p, 6, order_weights)
        results = (*compiled.probabilities(contexts, candidates), compiled.successors(contexts, 6), ids)
        expected = (
            *numpy_query.probabilities(pools, weights, contexts, candidates),
            numpy_query.successors(pools, contexts, 6),
            expected_ids,
        )
        if not (all(map(np.array_equal, results, expected)) and np.allclose(mixed, expected_mixed)):
            raise ValueError("the library gives wrong results; install the package again")


def _small_pools(vocab_size: int) -> list[list[Columns]]:
    """Tables with narrow and wide rows, small and large counts, signed and not."""
    wide = np.stack([np.zeros(40, dtype=np.int64), np.arange(40)], axis=1).reshape(-1)
    text = np.concatenate([[0, 5, 0, vocab_size - 1], [3, 1, 2, 1] * 300, [0, 9, 0, 7] * 3, wide])
    signed = build_columns(count_streams([text], orders=(2, 3, 5), vocab_size=vocab_size), vocab_size)
    large = np.flatnonzero(signed.counts >= COUNT_OVERFLOW)
    table = replace(
        signed,
        counts=np.minimum(signed.counts, COUNT_OVERFLOW).astype("|u1"),
        overflow_places=large.astype("<u4"),
        overflow_counts=signed.counts[large].astype("<u4"),
    )
    removed = count_streams([text[:9]], orders=(2, 3), vocab_size=vocab_size)
    return [[table, build_columns(negate(removed), vocab_size)], [signed]]

"""The query of tables as its users hold it: by the compiled kernel.c where there is one, by `lookup` where not.

Comes in: pools of columns and their weights, once; then contexts and candidates, often. Goes out: what `lookup`
says of them, the same numbers either way. The kernel is a plain C library (shared_library.py), called without
Python's lock, and fits every Python. Who doubts it sets SPD_LSP_KERNEL=0.

Dimensions: K drafts, L tokens of context, C candidates, V vocabulary.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ngram_builders.arrays import F32, F64, I64, Ints
from ngram_builders.ngrams import count_streams, hash_bits, negate, other
from ngram_builders.table import numpy_query, shared_library
from ngram_builders.table.format import OVERFLOW, SECTION_DTYPES, Columns
from ngram_builders.table.numpy_query import ORDER_COUNT, Pools
from ngram_builders.table.shared_library import KERNEL_VARIABLE, is_disabled, open_library
from ngram_builders.table.writer import build_columns

_ARRAYS = tuple(SECTION_DTYPES)  # the order of the addresses in kernel.c
EQUAL_WEIGHTS = np.tri(ORDER_COUNT + 1, ORDER_COUNT, -1) / 10  # some weights, for trying it out

log = logging.getLogger(__name__)


class Segment(ctypes.Structure):
    """One set of columns, as kernel.c sees it."""

    _fields_ = (
        *((f"{name}_address", ctypes.c_uint64) for name in _ARRAYS),
        *((name, ctypes.c_int64) for name in ("rows", "entries", "overflows", "wides")),
        ("base", ctypes.c_int64 * ORDER_COUNT),
        ("shift", ctypes.c_int64 * ORDER_COUNT),
        *((name, ctypes.c_int64) for name in ("hash_shift", "other", "token_size", "count_size")),
    )


class Pool(ctypes.Structure):
    """Segments whose counts add up."""

    _fields_ = (("weight", ctypes.c_double), ("first", ctypes.c_int64), ("end", ctypes.c_int64))


class CompiledQuery:
    """Pools in the kernel's structures. Each call has memory of its own, so that threads do not meet."""

    def __init__(self, library: ctypes.CDLL, pools: Pools, weights: Sequence[float]) -> None:
        self.library = library
        columns = [columns for pool in pools for columns in pool]
        self.arrays = [_native(one) for one in columns]  # the structures hold their addresses
        self.segments = (Segment * len(columns))(*map(_segment, columns, self.arrays))
        ends = np.cumsum([len(pool) for pool in pools], dtype=int).tolist()
        firsts = [end - len(pool) for end, pool in zip(ends, pools, strict=True)]
        self.pools = (Pool * len(ends))(*map(Pool, weights, firsts, ends))
        self.highest = max((other(one.vocab_size) for one in columns), default=0)

    def probabilities(self, contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
        """See `Query.probabilities`."""
        (drafts, length), choices = contexts.shape, len(candidates)
        slots, pools, segments = drafts * ORDER_COUNT, len(self.pools), len(self.segments)
        answer = slots * (choices + 1)
        given = answer + drafts * length
        # As kernel.c lays it out: hashes, lengths, slices, totals, met, candidates.
        room = slots + drafts + 3 * segments * slots + pools * slots + segments * choices + 6 * choices
        block = np.zeros(given + choices + room)
        words = block.view(np.int64)
        words[answer:given] = contexts.reshape(-1)
        words[given : given + choices] = candidates
        self.library.mean(self.segments, self.pools, pools, drafts, length, choices, block.ctypes.data)
        p = block[: slots * choices].reshape(drafts, ORDER_COUNT, choices)
        return p, block[slots * choices : answer].reshape(drafts, ORDER_COUNT)

    def successors(self, contexts: Ints, n: int) -> I64:
        """See `Query.successors`."""
        (drafts, length), n = contexts.shape, min(n, self.highest)
        if n <= 0:
            return np.empty(0, dtype=np.int64)
        slots, pools, segments = drafts * ORDER_COUNT, len(self.pools), len(self.segments)
        given, ids = drafts * length, pools * drafts * n
        # As kernel.c lays it out: hashes, lengths, slices, heap, and the ids once more.
        room = slots + drafts + 3 * segments * slots + 2 * n + ids
        block = np.empty(given + ids + room, dtype=np.int64)
        block[:given] = contexts.reshape(-1)
        found = self.library.successors(self.segments, self.pools, pools, drafts, length, n, block.ctypes.data)
        answer: I64 = block[given : given + found].copy()
        return answer

    def mix_candidates(self, contexts: Ints, p: F32, n: int, weights: F64) -> tuple[I64, F64]:
        """See `Query.mix_candidates`."""
        (drafts, length), n = contexts.shape, min(n, len(p))
        if n <= 0:
            return np.empty(0, dtype=np.int64), np.empty(0).reshape(drafts, 0)
        slots, pools, segments = drafts * ORDER_COUNT, len(self.pools), len(self.segments)
        most = n + pools * drafts * n
        given = drafts * length
        answer = given + (ORDER_COUNT + 1) * ORDER_COUNT
        # As kernel.c lays it out: ids and p_f, then heard, hashes, lengths, slices, totals, heap, met, candidates.
        room = (1 + drafts) * most + 2 * slots + drafts + 3 * segments * (slots + 1) + pools * slots + 2 * n
        block = np.empty(answer + room + (segments + 6) * most)
        words = block.view(np.int64)
        words[:given] = contexts.reshape(-1)
        block[given:answer] = weights.reshape(-1)
        arguments = (self.segments, self.pools, pools, drafts, length, n, p.ctypes.data, len(p), block.ctypes.data)
        found = self.library.nested(*arguments)
        start = answer + most
        p_f = block[start : start + drafts * found].reshape(drafts, found)
        return words[answer : answer + found], p_f


def _native(columns: Columns) -> dict[str, Ints]:
    """The arrays in the types that kernel.c reads; those of a file or of `build_columns` already are."""
    types = {
        "tokens": "<u2" if columns.tokens.itemsize == 2 else "<u4",
        "counts": "|u1" if columns.counts.itemsize == 1 else "<i4",
        "wide_totals": "<i8",
    }
    return {name: np.require(getattr(columns, name), types.get(name, "<u4"), ["C", "A"]) for name in _ARRAYS}


def _segment(columns: Columns, arrays: dict[str, Ints]) -> Segment:
    """The structure of one set of columns; lengths that disagree are cut to the shorter."""
    base, shift = numpy_query.directory_shifts(columns)
    sizes = {name: len(array) for name, array in arrays.items()}
    return Segment(
        *(array.ctypes.data for array in arrays.values()),
        max(0, min(sizes["fingerprints"], sizes["pointers"] - 1)),
        min(sizes["tokens"], sizes["counts"]),
        min(sizes["overflow_places"], sizes["overflow_counts"]),
        min(sizes["wide_rows"], sizes["wide_totals"]),
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


def reason_without_kernel() -> str:
    """Why queries run without the compiled kernel, some ten times slower; empty if they run with it."""
    return f"{KERNEL_VARIABLE}=0 is set" if is_disabled() else load_kernel().reason


@cache
def load_kernel() -> LoadedKernel:
    """The compiled kernel, tried out. Says once in the log if it is broken."""
    if not shared_library.LIBRARY.exists():
        return LoadedKernel(None, "it was not compiled when the package was installed")
    try:
        found = open_library(shared_library.LIBRARY)
        check_kernel(found)
    except (OSError, AttributeError, ValueError) as error:
        log.warning("n-gram queries run without the compiled kernel, slower: %s", error)
        return LoadedKernel(None, str(error))
    return LoadedKernel(found)


def check_kernel(library: ctypes.CDLL) -> None:
    """ValueError if the library says other things of a small table than `lookup` does."""
    for vocab_size in (50, 70_000):
        pools = _small_pools(vocab_size)
        contexts = np.array([[-1, -1, 3, 1], [2, 1, 2, 0], [0, 9, 0, 5], [9, 9, 9, 9], [-1, -1, -1, 0]])
        candidates = np.array([5, 1, 0, 1, 77_777, -1, vocab_size - 1])
        compiled = CompiledQuery(library, pools, (0.3, 0.7))
        said = (*compiled.probabilities(contexts, candidates), compiled.successors(contexts, 6))
        expected = (
            *numpy_query.probabilities(pools, (0.3, 0.7), contexts, candidates),
            numpy_query.successors(pools, contexts, 6),
        )
        if not all(map(np.array_equal, said, expected)):
            raise ValueError("the library answers wrongly")
        p = np.linspace(-0.1, 0.3, vocab_size, dtype=np.float32)[::-1].copy()
        ids, mixed = compiled.mix_candidates(contexts, p, 6, EQUAL_WEIGHTS)
        known, beside = numpy_query.mix_candidates(pools, (0.3, 0.7), contexts, p, 6, EQUAL_WEIGHTS)
        if not (np.array_equal(ids, known) and np.allclose(mixed, beside)):
            raise ValueError("the library answers wrongly")


def _small_pools(vocab_size: int) -> list[list[Columns]]:
    """Tables with rows narrow and wide, counts small and large, signed and not."""
    wide = np.stack([np.zeros(40, dtype=np.int64), np.arange(40)], axis=1).reshape(-1)
    text = np.concatenate([[0, 5, 0, vocab_size - 1], [3, 1, 2, 1] * 300, [0, 9, 0, 7] * 3, wide])
    run = count_streams([text], orders=(2, 3, 5), vocab_size=vocab_size)
    signed = build_columns(run, vocab_size)
    many = np.flatnonzero(signed.counts >= OVERFLOW)
    table = replace(
        signed,
        counts=np.minimum(signed.counts, OVERFLOW).astype("|u1"),
        overflow_places=many.astype("<u4"),
        overflow_counts=signed.counts[many].astype("<u4"),
    )
    back = count_streams([text[:9]], orders=(2, 3), vocab_size=vocab_size)
    return [[table, build_columns(negate(back), vocab_size)], [signed]]

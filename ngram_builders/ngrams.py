"""Token ids -> counts of every n-gram as one sorted run. Knows ids, not text, files or formats.

An n-gram is a context of n - 1 tokens and the token after it. It is kept as one 64-bit record: the order above,
the context's hash below, the token in the lower `token_bits`. Sorting records therefore groups orders
and contexts and sorts their tokens, and equal records are equal n-grams: counting is sort and run-length. Runs can
be added in any grouping and order, and a run with negative counts removes text.

With 40 hash bits, of a million contexts of an order about every second time one pair shares a hash, of ten million
45 pairs do; such a pair counts as one context.

Dimensions: B tokens, G distinct n-grams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import I32, U64, Ints
from ngram_builders.errors import UserError

ORDERS = (2, 3, 4, 5, 6)
HIGHEST_ORDER = 9
MAX_COUNT = 2**31 - 1  # of an n-gram; what is counted more often has this count
_ORDER_BITS = 3
_MAX_HASH_BITS = 40  # a table stores what its directory does not imply; more bits would be more bytes


def _multiplier(distance: int) -> int:
    """Return the odd 64-bit factor of the token so many steps before the next one (splitmix64)."""
    z = (distance * 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return (z ^ (z >> 31)) | 1


_MULTIPLIERS: U64 = np.array([_multiplier(distance) for distance in range(1, HIGHEST_ORDER)], dtype=np.uint64)
_MULTIPLIERS.setflags(write=False)


@dataclass(frozen=True, slots=True)
class TokenSpace:
    """The token ids that a table and a model must share to understand each other."""

    fingerprint: str  # of the tokenizer
    vocab_size: int
    end_of_text: int


@dataclass(frozen=True, slots=True)
class Run:
    """Distinct n-grams of all orders, sorted, with their counts, none of them 0."""

    records: U64  # [G] order - 2 | context hash | token
    counts: I32  # [G] negative where text was removed

    def __len__(self) -> int:
        return len(self.records)

    def record(self, place: int) -> int:
        """Return one record."""
        return int(self.records[place])

    def find(self, record: int) -> int:
        """Return the place of the first record that is not below this one."""
        return int(np.searchsorted(self.records, np.uint64(record)))

    def load(self, start: int, end: int) -> Run:
        """Return a part of it."""
        return Run(self.records[start:end], self.counts[start:end])


def token_bits(vocab_size: int) -> int:
    """Return how many low bits of a record hold the token; they leave a value for `other`."""
    return max(16, vocab_size.bit_length())


def hash_bits(vocab_size: int) -> int:
    """Return how many bits of a context's hash a record holds, beside order and token."""
    return min(_MAX_HASH_BITS, 64 - _ORDER_BITS - token_bits(vocab_size))


def order_shift(vocab_size: int) -> int:
    """Return how many bits of a record lie below the order."""
    return hash_bits(vocab_size) + token_bits(vocab_size)


def other(vocab_size: int) -> int:
    """Return the token that stands for all pruned entries of a context: all ones, which no id is. Sorts last."""
    return int(2 ** token_bits(vocab_size) - 1)


def check_orders(orders: Sequence[int]) -> tuple[int, ...]:
    """Return the orders, ascending and each once."""
    chosen = tuple(sorted(set(orders)))
    if not chosen or chosen[0] < 2 or chosen[-1] > HIGHEST_ORDER:
        raise UserError(f"n-gram orders go from 2 to {HIGHEST_ORDER}, not {orders}; choose among those")
    return chosen


def _check_ids(streams: Sequence[Ints], vocab_size: int) -> None:
    """Refuse ids that records cannot hold. Ids beyond vocab_size alone are fine: vocabularies have holes."""
    limit = other(vocab_size)
    for ids in streams:
        lowest, highest = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
        if lowest < 0 or highest >= limit:
            raise UserError(
                f"token id {lowest if lowest < 0 else highest} is outside of 0 to {limit - 1}; "
                "give the size of the tokenizer's whole vocabulary, added tokens included"
            )


def with_boundaries(ids: Sequence[int] | Ints, end_of_text: int) -> npt.NDArray[np.int64]:
    """Return a document as it is counted, between two end-of-text tokens: how files begin and end counts too.

    Example: [5, 7], 0 -> [0, 5, 7, 0]
    """
    return np.concatenate(([end_of_text], ids, [end_of_text])).astype(np.int64)


def count_streams(streams: Sequence[Ints], *, orders: Sequence[int], vocab_size: int) -> Run:
    """Count the n-grams within each array of ids; none reaches from one array into the next.

    Example: streams=[[5, 7, 5, 7]], orders=(2,) -> 5 7: 2, 7 5: 1
    """
    orders = check_orders(orders)
    _check_ids(streams, vocab_size)
    parts = [_run_of(records) for records in _records_by_order(streams, orders, vocab_size)]
    return Run(np.concatenate([part.records for part in parts]), np.concatenate([part.counts for part in parts]))


def _records_by_order(streams: Sequence[Ints], orders: Sequence[int], vocab_size: int) -> Iterable[U64]:
    """Yield the records of all n-grams, unsorted, order by order."""
    ids = np.concatenate([np.empty(0, dtype=np.uint64), *streams]).astype(np.uint64)  # [B]
    lengths = np.array([len(stream) for stream in streams], dtype=np.int64)
    remaining = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(ids))  # [B] tokens to the end of its array
    context = np.empty(0, dtype=np.uint64)  # grows by one token per order; the first stands for the first window
    for order in range(2, orders[-1] + 1):
        back = order - 1
        windows = max(len(ids) - back, 0)
        # Window i is ids[i] ... ids[i + back]; its context ends at i + back - 1.
        farther = (ids[:windows] + np.uint64(1)) * _MULTIPLIERS[back - 1]
        context = farther if back == 1 else np.add(context[1:], farther, out=farther)
        if order in orders:
            whole = np.flatnonzero(remaining[:windows] > back)
            hashed = _mix(context[whole])
            hashed >>= np.uint64(64 - hash_bits(vocab_size))
            hashed <<= np.uint64(token_bits(vocab_size))
            hashed |= ids[whole + back]
            hashed |= np.uint64((order - 2) << order_shift(vocab_size))
            yield hashed


def _mix(values: U64) -> U64:
    """Spread every input bit over all 64 output bits, in place (the finaliser of MurmurHash3)."""
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values


def _run_of(records: U64) -> Run:
    """Sort and count records."""
    records.sort()
    starts = group_starts(records)
    return Run(records[starts], np.diff(starts, append=len(records)).astype(np.int32))


def group_starts(ordered: U64) -> npt.NDArray[np.intp]:
    """Return where each run of equal values begins. Example: [4, 4, 9] -> [0, 2]"""
    changes = np.empty(len(ordered), dtype=bool)
    changes[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def merge(runs: Sequence[Run]) -> Run:
    """Add runs; n-grams whose counts cancel out are dropped. No sum is above MAX_COUNT."""
    runs = [run for run in runs if len(run)]
    if len(runs) == 1:
        return runs[0]
    records = np.concatenate([np.empty(0, dtype=np.uint64), *(run.records for run in runs)])
    # A stable sort sees the sorted runs and merges them.
    order = np.argsort(records, kind="stable")
    records = records[order]
    starts = group_starts(records)
    if not len(starts):
        return Run(records, np.empty(0, dtype=np.int32))
    counts = _add_up(np.concatenate([run.counts for run in runs])[order], starts)
    kept = counts != 0
    return Run(records[starts[kept]], counts[kept])


def _add_up(counts: I32, starts: npt.NDArray[np.intp]) -> I32:
    """Add up groups of counts."""
    sums = np.add.reduceat(counts, starts, dtype=np.int64)
    return np.minimum(sums, MAX_COUNT).astype(np.int32)


def negate(run: Run) -> Run:
    """Return the run that cancels this one when merged with it."""
    return Run(run.records, -run.counts)


def prune(run: Run, min_count: Mapping[int, int], vocab_size: int) -> Run:
    """Drop n-grams rarer than their order's minimum count; their mass goes to the OTHER entry of their context.

    Expects whole contexts. A context with no other entry left is dropped.
    """
    minimum = np.array([max(1, min_count.get(order, 1)) for order in range(2, HIGHEST_ORDER + 1)], dtype=np.int32)
    if not len(run) or minimum.max() == 1:
        return run
    orders = (run.records >> np.uint64(order_shift(vocab_size))).astype(np.intp)
    return drop(run, run.counts < minimum[orders], vocab_size)


def drop(run: Run, dropped: npt.NDArray[np.bool_], vocab_size: int) -> Run:
    """Drop some n-grams; their mass goes to the OTHER entry of their context. Expects whole contexts."""
    bits = np.uint64(token_bits(vocab_size))
    rest_of = np.uint64(other(vocab_size))
    dropped = dropped | ((run.records & rest_of) == rest_of)  # and what earlier calls dropped
    context = run.records >> bits
    starts = group_starts(context)
    mass = _add_up(np.where(dropped, run.counts, 0), starts)  # per context
    partly = (mass > 0) & (np.add.reduceat(~dropped, starts, dtype=np.int64) > 0)
    rest = Run((context[starts[partly]] << bits) | rest_of, mass[partly])
    return merge([Run(run.records[~dropped], run.counts[~dropped]), rest])

"""Tables -> how likely tokens are after contexts, in numpy. kernel.c gives the same numbers and is what usually
runs.

Comes in: pools of columns whose counts add up, contexts, candidates. Goes out: probabilities by order, successors.
Knows no files. What is read from the columns and used as a place is first brought within its array: a damaged file
gives wrong numbers and no error.

Dimensions: K drafts, L tokens of context, O orders from 2 to the highest, C candidates; S contexts found in a
table, each in one of K * O slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, I64, U64, Ints
from ngram_builders.ngrams import HIGHEST_ORDER, hash_bits, hash_contexts, other
from ngram_builders.table.format import OVERFLOW, WIDE_ROW, Columns

Pools = Sequence[Sequence[Columns]]

ORDER_COUNT = HIGHEST_ORDER - 1
_NONE: I64 = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Matches:
    """Where one table knows the contexts asked for; only those that it has seen."""

    columns: Columns
    slots: I64  # [S] each once, ascending
    rows: I64  # [S]
    starts: I64  # [S] a row's entries
    widths: I64  # [S] at least 1


def probabilities(pools: Pools, weights: Sequence[float], contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
    """How likely each candidate is after each context: p [K, O, C], and the weight of who says so: heard [K, O].

    p is the weighted mean of count / total over the pools that have seen the context, heard their weights' sum.
    contexts [K, L] are the drafts' last tokens, the newest rightmost, -1 where the history is shorter; candidates
    [C] may be anything, what no table can hold has p = 0. A context that no pool has seen has p = 0, heard = 0.
    """
    slots = len(contexts) * ORDER_COUNT
    heard = np.zeros(slots)
    said = []
    for pool, weight in zip(pools, weights, strict=True):
        if not weight > 0:
            continue
        found = _locate_all(pool, contexts)
        totals = _pooled_totals(found, slots)
        heard += weight * (totals > 0)
        said.append((weight, totals, likelihoods(found, totals, candidates)))
    p = np.zeros((slots, len(candidates)))
    for weight, totals, likely in said:
        share = np.divide(weight, heard, out=np.zeros(slots), where=totals > 0)
        p += share[:, None] * likely
    shape = (len(contexts), ORDER_COUNT)
    return p.reshape(*shape, len(candidates)), heard.reshape(shape)


def successors(pools: Pools, contexts: Ints, n: int) -> I64:
    """The tokens that commonly followed the contexts [K, L]: ids, sorted, each once.

    Of each pool and context the n commonest, of equally common ones the lowest, after the longest end of the
    context that the pool knows a successor of.
    """
    best = [_NONE]
    for pool in pools:
        found = _locate_all(pool, contexts)
        seen = _pooled_totals(found, len(contexts) * ORDER_COUNT).reshape(-1, ORDER_COUNT) > 0
        for k, orders in enumerate(seen):
            for o in np.flatnonzero(orders)[::-1]:
                if len(chosen := _commonest(found, k * ORDER_COUNT + int(o), n)):
                    best.append(chosen)
                    break
    ids = np.sort(np.concatenate(best))
    return ids[_firsts(ids)]


def mix_candidates(
    pools: Pools, weights: Sequence[float], contexts: Ints, p: npt.NDArray[np.floating], n: int, rows: F64
) -> tuple[I64, F64]:
    """Candidates of a model and of the pools, and how likely each is for both together: ids [C], p_f [K, C].

    p [V] is the model's word; below 0 is what may not follow. Candidates are its n likeliest and `successors`.
    p_f = (1 - sum_o rows[m, o]) p + sum_o rows[m, o] p_o, p_o by `mean`, m the length of the context heard.
    """
    both = np.concatenate((_largest(p, n), successors(pools, contexts, n)))
    both = np.sort(both[both < len(p)])
    ids = both[_firsts(both)]
    ids = ids[p[ids] >= 0]
    p_o, heard = probabilities(pools, weights, contexts, ids)
    m = ((heard > 0) * np.arange(1, ORDER_COUNT + 1)).max(axis=1)
    remains = 1 - rows.sum(axis=1)
    return ids, remains[m, None] * p[ids] + np.einsum("ko,koc->kc", rows[m], p_o)


def _largest(p: npt.NDArray[np.floating], n: int) -> I64:
    """The places of the n largest values, of equals the first."""
    n = min(n, len(p))
    if n <= 0:
        return _NONE
    places = np.flatnonzero(p >= np.partition(p, len(p) - n)[len(p) - n])
    return places[np.argsort(-p[places], kind="stable")][:n]


def _commonest(found: Sequence[Matches], slot: int, n: int) -> I64:
    """The n commonest tokens of one slot, OTHER not among them."""
    tokens, counts = [_NONE], [_NONE]
    for one in found:
        for i in np.flatnonzero(one.slots == slot):
            places = np.arange(one.starts[i], one.starts[i] + one.widths[i])
            tokens.append(one.columns.tokens.take(places).astype(np.int64))
            counts.append(_exact_counts(one.columns, places) * (tokens[-1] < other(one.columns.vocab_size)))
    joined = np.concatenate(tokens)
    order = np.argsort(joined, kind="stable")
    starts = _firsts(joined[order])
    distinct, sums = joined[order][starts], np.add.reduceat(np.concatenate(counts)[order], starts)
    likeliest = np.lexsort((distinct, -sums))[: max(n, 0)]
    return distinct[likeliest][sums[likeliest] > 0]


def _firsts(ordered: I64) -> npt.NDArray[np.intp]:
    """Where each run of equal values begins. np.unique would load masked arrays first, slower than a query."""
    return np.flatnonzero(np.diff(ordered, prepend=-1))


def _pooled_totals(found: Sequence[Matches], slots: int) -> I64:
    """[slots] what followed each context in all; not above 0 where it is unseen."""
    sums = np.zeros(slots, dtype=np.int64)
    for one in found:
        sums[one.slots] += _row_totals(one)
    return sums


def likelihoods(found: Sequence[Matches], totals: I64, candidates: Ints) -> F64:
    """count / total [slots, C], kept between 0 and 1: beside a pruned table, changes can take away too much."""
    sums = np.zeros((len(totals), len(candidates)), dtype=np.int64)
    for one in found:
        sums[one.slots] += _counts_of(one, candidates)
    likely = np.divide(sums, totals[:, None], out=np.zeros(sums.shape), where=(totals > 0)[:, None])
    return np.clip(likely, 0, 1, out=likely)


def _locate_all(pool: Sequence[Columns], contexts: Ints) -> list[Matches]:
    """What each table of a pool knows of the contexts."""
    latest_first = np.asarray(contexts, dtype=np.int64)[:, ::-1][:, :ORDER_COUNT]
    known = np.zeros((len(contexts), ORDER_COUNT), dtype=bool)
    known[:, : latest_first.shape[1]] = np.logical_and.accumulate(latest_first >= 0, axis=1)
    hashes = np.zeros(known.shape, dtype=np.uint64)
    found = []
    vocab_size = 0
    for columns in pool:
        if columns.vocab_size != vocab_size:
            vocab_size = columns.vocab_size
            hashes[:, : latest_first.shape[1]] = hash_contexts(latest_first, vocab_size)
        found.append(_locate_rows(columns, hashes, known))
    return found


def _locate_rows(columns: Columns, hashes: U64, known: npt.NDArray[np.bool_]) -> Matches:
    """Find contexts by the directory and their fingerprints: hashes, known [K, O]."""
    base, shift = directory_shifts(columns)
    slots = np.flatnonzero(known & (shift >= 0))
    hashed = hashes.reshape(-1)[slots]
    orders = slots % ORDER_COUNT
    buckets = base[orders] + (hashed >> shift[orders].astype(np.uint64)).astype(np.int64)
    rows = max(0, min(len(columns.fingerprints), len(columns.pointers) - 1))
    starts, widths = _between(columns.directory, buckets, rows)
    kept = widths > 0
    slots, starts, widths = slots[kept], starts[kept], widths[kept]
    fingerprints = hashed[kept].astype(np.uint32)
    row = _bisect(columns.fingerprints, starts, widths, fingerprints)
    starts, widths = _between(columns.pointers, row, min(len(columns.tokens), len(columns.counts)))
    kept = (columns.fingerprints.take(row) == fingerprints) & (widths > 0)
    widths = np.minimum(widths, other(columns.vocab_size) + 1)
    return Matches(columns, slots[kept], row[kept], starts[kept], widths[kept])


def directory_shifts(columns: Columns) -> tuple[I64, I64]:
    """[O] Where each order's directory begins, and how far a hash is shifted to be a place in it.

    The shift is -1 where there is no such order, or its directory would reach beyond the array.
    """
    base, shift = np.zeros(ORDER_COUNT, dtype=np.int64), np.full(ORDER_COUNT, -1, dtype=np.int64)
    bits = hash_bits(columns.vocab_size)
    for order, (start, upper) in columns.orders.items():
        within = 0 <= upper <= bits and start >= 0 and start + 2**upper + 1 <= len(columns.directory)
        if within and 2 <= order <= HIGHEST_ORDER:
            base[order - 2], shift[order - 2] = start, bits - upper
    return base, shift


def _between(borders: Ints, places: I64, most: int) -> tuple[I64, I64]:
    """Starts and widths of what lies between neighbouring borders, none beyond `most`."""
    starts = np.minimum(borders.take(places).astype(np.int64), most)
    ends = np.minimum(borders.take(places + 1).astype(np.int64), most)
    return starts, np.maximum(ends - starts, 0)


def _bisect(values: Ints, starts: I64, widths: I64, needles: Ints) -> I64:
    """The last of each slice's ascending values that is not above its needle, or the slice's first.

    starts and widths, of one shape, broadcast against needles: all slices are halved together.
    """
    places = starts + np.zeros(needles.shape, dtype=np.int64)
    left = widths
    for _ in range(int(widths.max(initial=1) - 1).bit_length()):
        half = left >> 1
        # A slice of one has nothing to halve; it reads its own place again.
        places += half * (values.take(places + half) <= needles)
        left = left - half
    return places


def _counts_of(found: Matches, candidates: Ints) -> I64:
    """How often each candidate followed each context found: [S, C]."""
    columns = found.columns
    if not len(found.slots):
        return np.zeros((0, len(candidates)), dtype=np.int64)
    places = _bisect(columns.tokens, found.starts[:, None], found.widths[:, None], candidates[None, :])
    held = (columns.tokens.take(places) == candidates) & (candidates < other(columns.vocab_size))
    counts = np.zeros(places.shape, dtype=np.int64)
    counts[held] = _exact_counts(columns, places[held])
    return counts


def _exact_counts(columns: Columns, places: I64) -> I64:
    """The counts of these entries, the large ones from the overflow."""
    counts = columns.counts.take(places).astype(np.int64)
    if columns.counts.dtype.itemsize > 1:
        return counts
    many = np.flatnonzero(counts == OVERFLOW)
    counts[many] = _matching(columns.overflow_places, columns.overflow_counts, places[many], counts[many])
    return counts


def _row_totals(found: Matches) -> I64:
    """[S] what followed each context in this table: written down for wide rows, a sum for others."""
    columns = found.columns
    sums = np.zeros(len(found.slots), dtype=np.int64)
    wide = found.widths >= WIDE_ROW
    sums[wide] = _matching(columns.wide_rows, columns.wide_totals, found.rows[wide], np.int64(0))
    if not wide.all():
        starts, widths = found.starts[~wide], found.widths[~wide]
        ends = np.cumsum(widths)
        places = np.arange(ends[-1]) + np.repeat(starts - ends + widths, widths)
        sums[~wide] = np.add.reduceat(_exact_counts(columns, places), ends - widths)
    return sums


def _matching(keys: Ints, values: Ints, needles: I64, default: I64 | np.int64) -> I64:
    """The values that stand at the needles among sorted keys, the default where they do not."""
    length = min(len(keys), len(values))
    if not (length and len(needles)):
        return np.broadcast_to(default, needles.shape)
    # The needles need the keys' type: of another, searchsorted would copy all keys.
    at = np.searchsorted(keys[:length], needles.astype(keys.dtype)).clip(max=length - 1)
    return np.where(keys.take(at) == needles, values.take(at).astype(np.int64), default)

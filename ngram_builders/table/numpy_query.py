"""How likely tokens are after contexts, by numpy. kernel.c gives the same numbers, faster, and is usually used.

In: pools of columns whose counts add up, contexts, candidates. Out: probabilities by order, successors. Knows no
files. Whatever is read from the columns and used as an index is first brought within its array: a damaged file
gives wrong numbers and no error.

Dimensions: W pools, K drafts, L tokens of context, O orders from 2 to the highest, C candidates, V vocabulary;
S contexts that a table has, each in one of K * O slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, I64, U64, Floats, Ints
from ngram_builders.ngrams import HIGHEST_ORDER, hash_bits, hash_contexts, other
from ngram_builders.table.format import BLOCK_ROWS, COUNT_OVERFLOW, ONES, POINTERS, SHAPE_BITS, WIDE, Columns

Pools = Sequence[Sequence[Columns]]

ORDER_COUNT = HIGHEST_ORDER - 1
_NONE: I64 = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Matches:
    """The contexts that one table has, and where."""

    columns: Columns
    slots: I64  # [S] ascending, each once
    starts: I64  # [S] of a row's entries
    widths: I64  # [S] at least 1
    counts: I64  # [S] where the row's counts begin; negative: each is 1
    totals: I64  # [S] where the row's total is; negative: nowhere


def probabilities(pools: Pools, weights: Sequence[float], contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
    """Return how likely each candidate is after each context, p [K, O, C], and the matched weight [K, O].

    p is the weighted mean of count / total over the pools that have seen the context; matched is the sum of their
    weights. A context that no pool has seen has p = 0 and matched = 0. contexts [K, L] are the drafts' last
    tokens, the newest last, -1 where the history is shorter; candidates [C] may be anything: p = 0 for what no
    table can hold.
    """
    p, matched, _ = _query_pools(pools, weights, contexts, candidates)
    return p, matched


def _query_pools(pools: Pools, weights: Sequence[float], contexts: Ints, candidates: Ints) -> tuple[F64, F64, F64]:
    """`probabilities`, and the share of each pool in the matched weight, [W, K, O]."""
    slots = len(contexts) * ORDER_COUNT
    matched = np.zeros(slots)
    parts = []
    for at, (pool, weight) in enumerate(zip(pools, weights, strict=True)):
        if not weight > 0:
            continue
        matches = _match_contexts(pool, contexts)
        totals = _pool_totals(matches, slots)
        matched += weight * (totals > 0)
        parts.append((at, weight, totals, _likelihoods(matches, totals, candidates)))
    p, shares = np.zeros((slots, len(candidates))), np.zeros((len(pools), slots))
    for at, weight, totals, likelihoods in parts:
        np.divide(weight, matched, out=shares[at], where=totals > 0)
        p += shares[at, :, None] * likelihoods
    shape = (len(contexts), ORDER_COUNT)
    return p.reshape(*shape, len(candidates)), matched.reshape(shape), shares.reshape(len(pools), *shape)


def successors(pools: Pools, contexts: Ints, n: int) -> I64:
    """Return the tokens that commonly followed the contexts [K, L], sorted, each once.

    Of each pool and context the n commonest, of equally common ones the lowest, after the longest end of the
    context that the pool knows a successor of.
    """
    best = [_NONE]
    for pool in pools:
        matches = _match_contexts(pool, contexts)
        seen = _pool_totals(matches, len(contexts) * ORDER_COUNT).reshape(-1, ORDER_COUNT) > 0
        for k, orders in enumerate(seen):
            for o in np.flatnonzero(orders)[::-1]:
                if len(commonest := _top_tokens(matches, k * ORDER_COUNT + int(o), n)):
                    best.append(commonest)
                    break
    ids = np.sort(np.concatenate(best))
    return ids[_group_starts(ids)]


def mix(
    pools: Pools, weights: Sequence[float], contexts: Ints, candidates: Ints, p: Floats, order_weights: F64
) -> F64:
    """Return a model's probabilities p, [C] or [K, C], mixed with those of the pools, [K, C].

    Mixed is (1 - sum_o w[o]) p + sum_o w[o] p_o, with p_o from `probabilities`. w is row m of the order weights
    [W, O + 1, O], m the length of the longest context matched: the mean of the pools that know it, by shares.
    """
    p_o, matched, shares = _query_pools(pools, weights, contexts, candidates)
    m = ((matched > 0) * np.arange(1, ORDER_COUNT + 1)).max(axis=1)  # [K]
    of_longest = np.take_along_axis(shares, np.maximum(m - 1, 0)[None, :, None], axis=2) * (m > 0)[:, None]
    rows = (of_longest * np.broadcast_to(order_weights, (len(pools), *order_weights.shape[-2:]))[:, m]).sum(axis=0)
    return np.asarray((1 - rows.sum(axis=1, keepdims=True)) * p + np.einsum("ko,koc->kc", rows, p_o))


def mix_candidates(
    pools: Pools, weights: Sequence[float], contexts: Ints, p: Floats, n: int, order_weights: F64
) -> tuple[I64, F64]:
    """Return candidates of a model and of the pools, [C], and what `mix` makes of their probabilities, [K, C].

    p [V] is the model's probability, below 0 for tokens that must not follow. The candidates are its n likeliest
    and `successors`.
    """
    ids = np.concatenate((_top_indices(p, n), successors(pools, contexts, n)))
    ids = np.sort(ids[ids < len(p)])
    ids = ids[_group_starts(ids)]
    ids = ids[p[ids] >= 0]
    return ids, mix(pools, weights, contexts, ids, p[ids], order_weights)


def _top_indices(p: Floats, n: int) -> I64:
    """The indices of the n largest values, of equals the first."""
    n = min(n, len(p))
    if n <= 0:
        return _NONE
    indices = np.flatnonzero(p >= np.partition(p, len(p) - n)[len(p) - n])
    return indices[np.argsort(-p[indices], kind="stable")][:n]


def _top_tokens(matches: Sequence[Matches], slot: int, n: int) -> I64:
    """The n commonest tokens of one slot, without OTHER."""
    tokens, counts = [_NONE], [_NONE]
    for match in matches:
        for i in np.flatnonzero(match.slots == slot):
            entries = np.arange(match.widths[i])
            tokens.append(match.columns.tokens.take(match.starts[i] + entries).astype(np.int64))
            is_token = tokens[-1] < other(match.columns.vocab_size)
            counts.append(_exact_counts(match.columns, match.counts[i], entries) * is_token)
    joined = np.concatenate(tokens)
    order = np.argsort(joined, kind="stable")
    starts = _group_starts(joined[order])
    distinct, sums = joined[order][starts], np.add.reduceat(np.concatenate(counts)[order], starts)
    commonest = np.lexsort((distinct, -sums))[: max(n, 0)]
    return distinct[commonest][sums[commonest] > 0]


def _group_starts(ordered: I64) -> npt.NDArray[np.intp]:
    """Where each run of equal values begins. np.unique would first load masked arrays, which takes longer."""
    return np.flatnonzero(np.diff(ordered, prepend=-1))


def _pool_totals(matches: Sequence[Matches], slots: int) -> I64:
    """[slots] how often each context was followed by anything; 0 or less if it is unseen."""
    sums = np.zeros(slots, dtype=np.int64)
    for match in matches:
        sums[match.slots] += _row_totals(match)
    return sums


def _likelihoods(matches: Sequence[Matches], totals: I64, candidates: Ints) -> F64:
    """count / total [slots, C], from 0 to 1: changes to a pruned table can take away more than it has."""
    sums = np.zeros((len(totals), len(candidates)), dtype=np.int64)
    for match in matches:
        sums[match.slots] += _candidate_counts(match, candidates)
    likelihoods = np.divide(sums, totals[:, None], out=np.zeros(sums.shape), where=(totals > 0)[:, None])
    return np.clip(likelihoods, 0, 1, out=likelihoods)


def _match_contexts(pool: Sequence[Columns], contexts: Ints) -> list[Matches]:
    """Find the contexts in each table of a pool."""
    latest_first = np.asarray(contexts, dtype=np.int64)[:, ::-1][:, :ORDER_COUNT]
    known = np.zeros((len(contexts), ORDER_COUNT), dtype=bool)
    known[:, : latest_first.shape[1]] = np.logical_and.accumulate(latest_first >= 0, axis=1)
    hashes = np.zeros(known.shape, dtype=np.uint64)
    matches = []
    vocab_size = 0
    for columns in pool:
        if columns.vocab_size != vocab_size:
            vocab_size = columns.vocab_size
            hashes[:, : latest_first.shape[1]] = hash_contexts(latest_first, vocab_size)
        matches.append(_find_rows(columns, hashes, known))
    return matches


def _find_rows(columns: Columns, hashes: U64, known: npt.NDArray[np.bool_]) -> Matches:
    """Find contexts by the directory and their fingerprints: hashes, known [K, O]."""
    base, shift = directory_shifts(columns)
    slots = np.flatnonzero(known & (shift >= 0))
    hashed = hashes.reshape(-1)[slots]
    orders = slots % ORDER_COUNT
    buckets = base[orders] + (hashed >> shift[orders].astype(np.uint64)).astype(np.int64)
    starts, widths = _between(columns.directory, buckets, row_count(columns))
    kept = widths > 0
    slots, starts, widths = slots[kept], starts[kept], widths[kept]
    last_heads = (hashed[kept] << np.uint64(SHAPE_BITS)).astype(np.uint32) | np.uint32(WIDE)
    rows = _bisect(columns.heads, starts, widths, last_heads)
    kept = columns.heads.take(rows) | np.uint32(WIDE) == last_heads
    return _read_rows(columns, slots[kept], rows[kept])


def row_count(columns: Columns) -> int:
    """How many rows there are; of lengths that disagree the shorter counts."""
    return max(0, min(len(columns.heads), (len(columns.pointers) // POINTERS - 1) * BLOCK_ROWS))


def _read_rows(columns: Columns, slots: I64, rows: I64) -> Matches:
    """Some rows' entries, which begin where those before them in their block end."""
    blocks, offsets = np.divmod(rows, BLOCK_ROWS)
    before = np.arange(BLOCK_ROWS) < offsets[:, None]  # the last column is the row's own
    members = np.where(before, blocks[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS), rows[:, None])
    shapes = (columns.heads.take(members) & WIDE).astype(np.int64)
    start, count, wide = (columns.pointers.take(POINTERS * blocks + i).astype(np.int64) for i in range(POINTERS))
    is_wide = shapes == WIDE
    totals = wide[:, None] + (is_wide & before).cumsum(axis=1)
    totals -= is_wide & before
    widths = np.where(
        is_wide, _wide_widths(columns, totals), np.where(shapes < ONES, shapes + 1, shapes + 1 - ONES)
    )
    is_stored = shapes >= ONES
    starts = np.minimum(start + (widths * before).sum(axis=1), len(columns.tokens))
    counts = np.minimum(count + (widths * (before & is_stored)).sum(axis=1), len(columns.counts))
    own, has_counts = widths[:, -1], is_stored[:, -1]
    own = np.minimum(np.minimum(own, len(columns.tokens) - starts), other(columns.vocab_size) + 1)
    own = np.where(has_counts, np.minimum(own, len(columns.counts) - counts), own)
    counts, totals = np.where(has_counts, counts, -1), np.where(is_wide[:, -1], totals[:, -1], -1)
    kept = own > 0
    return Matches(columns, *(part[kept] for part in (slots, starts, own, counts, totals)))


def _wide_widths(columns: Columns, places: I64) -> I64:
    """The widths of wide rows; 0 where there is none."""
    length = min(len(columns.wide_widths), len(columns.wide_totals))
    if not length:
        return np.zeros(places.shape, dtype=np.int64)
    return np.where(places < length, columns.wide_widths.take(places, mode="clip"), 0).astype(np.int64)


def directory_shifts(columns: Columns) -> tuple[I64, I64]:
    """[O] Where each order's directory begins, and how far a hash is shifted to be an index into it.

    The shift is -1 where there is no such order, or its directory would reach beyond the array.
    """
    base, shift = np.zeros(ORDER_COUNT, dtype=np.int64), np.full(ORDER_COUNT, -1, dtype=np.int64)
    hashed = hash_bits(columns.vocab_size)
    for order, (start, bits) in columns.orders.items():
        fits = 0 <= bits <= hashed and start >= 0 and start + 2**bits + 1 <= len(columns.directory)
        if fits and 2 <= order <= HIGHEST_ORDER:
            base[order - 2], shift[order - 2] = start, hashed - bits
    return base, shift


def _between(borders: Ints, places: I64, limit: int) -> tuple[I64, I64]:
    """Starts and widths of what lies between neighbouring borders, none beyond `limit`."""
    starts = np.minimum(borders.take(places).astype(np.int64), limit)
    ends = np.minimum(borders.take(places + 1).astype(np.int64), limit)
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


def _candidate_counts(match: Matches, candidates: Ints) -> I64:
    """How often each candidate followed each context found: [S, C]."""
    columns = match.columns
    if not len(match.slots):
        return np.zeros((0, len(candidates)), dtype=np.int64)
    places = _bisect(columns.tokens, match.starts[:, None], match.widths[:, None], candidates[None, :])
    held = (columns.tokens.take(places) == candidates) & (candidates < other(columns.vocab_size))
    counts = np.zeros(places.shape, dtype=np.int64)
    first_counts = np.broadcast_to(match.counts[:, None], held.shape)[held]
    counts[held] = _exact_counts(columns, first_counts, (places - match.starts[:, None])[held])
    return counts


def _exact_counts(columns: Columns, first: I64 | np.int64, entries: I64) -> I64:
    """The counts of entries of rows whose counts begin at `first`, or are all 1; large ones from the overflow."""
    first = np.broadcast_to(first, entries.shape)
    counts = np.ones(len(entries), dtype=np.int64)
    places = (first + entries)[first >= 0]
    counts[first >= 0] = _stored_counts(columns, places)
    return counts


def _stored_counts(columns: Columns, places: I64) -> I64:
    """These stored counts, large ones from the overflow."""
    counts = columns.counts.take(places).astype(np.int64) if len(places) else _NONE
    if columns.counts.dtype.itemsize > 1:
        return counts
    large = np.flatnonzero(counts == COUNT_OVERFLOW)
    counts[large] = _lookup(columns.overflow_places, columns.overflow_counts, places[large], counts[large])
    return counts


def _row_totals(match: Matches) -> I64:
    """[S] how often each context was followed by anything: stored for wide rows, a sum for others."""
    columns = match.columns
    sums: I64 = match.widths.copy()
    wide = match.totals >= 0
    sums[wide] = columns.wide_totals.take(match.totals[wide]) if wide.any() else 0
    summed = ~wide & (match.counts >= 0)
    if summed.any():
        widths = match.widths[summed]
        ends = np.cumsum(widths)
        places = np.arange(ends[-1]) + np.repeat(match.counts[summed] - ends + widths, widths)
        sums[summed] = np.add.reduceat(_stored_counts(columns, places), ends - widths)
    return sums


def _lookup(keys: Ints, values: Ints, needles: I64, default: I64 | np.int64) -> I64:
    """The values of the needles among sorted keys, the default for those that are not there."""
    length = min(len(keys), len(values))
    if not (length and len(needles)):
        return np.broadcast_to(default, needles.shape)
    # The needles need the keys' type: of another, searchsorted would copy all keys.
    at = np.searchsorted(keys[:length], needles.astype(keys.dtype)).clip(max=length - 1)
    return np.where(keys.take(at) == needles, values.take(at).astype(np.int64), default)

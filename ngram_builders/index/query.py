"""How likely tokens are after contexts, counted in suffix arrays: pools of arrays with weights.

The arrays of a pool add up: a table's shards, and beside them what was written since (+1) and what the table still
has of it (-1). No order is stored; that of n tokens is the interval of a context of n - 1.

Dimensions: W pools, K drafts, L tokens of context, O orders from 2 on, C candidates, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ngram_builders.arrays import F32, F64, I64, Floats, Ints
from ngram_builders.index.suffix_array import WIDE, SuffixArray, tally

ORDERS = (2, 3, 4, 5, 6)  # those of the paper
ORDER_COUNT = len(ORDERS)
_TINY = 1e-300
_GROUPS = 256  # of tokens: most of the likeliest twenty are in groups of their own


class Signed(NamedTuple):
    """A suffix array whose counts are added, or subtracted."""

    array: SuffixArray
    sign: int = 1


Pool = Sequence[Signed]


class _Part(NamedTuple):
    """Where a context stands in one array."""

    array: SuffixArray
    sign: int
    pool: int
    spans: list[tuple[int, int]]  # of each length of its end, as `SuffixArray.intervals`
    wide: int  # how many of the lengths are listed
    following: Ints  # the tokens behind the places of the first length that is not

    def tokens(self, order: int) -> Ints:
        """The tokens behind the places of one length that is not listed."""
        first, end = self.spans[order]
        start = self.spans[self.wide][0]
        return self.following[first - start : end - start]


@dataclass(frozen=True, slots=True)
class _Match:
    """Where a context stands in all pools."""

    parts: list[_Part]
    totals: list[list[int]]  # [W, O] how often; 0 or less where it does not


class Query:
    """Pools with weights, to be queried any number of times by any number of threads.

    Pools of weight 0 are left out. contexts [K, L] are the drafts' last tokens, the newest last, -1 where the
    history is shorter.
    """

    def __init__(self, pools: Sequence[Pool], weights: Sequence[float]) -> None:
        kept = [(pool, float(weight)) for pool, weight in zip(pools, weights, strict=True) if weight > 0]
        self.weights = [weight for _, weight in kept]
        self.parts = [(number, array, sign) for number, (pool, _) in enumerate(kept) for array, sign in pool]
        self.max_tokens = 1 + max((int(array.ids[-1]) for _, array, _ in self.parts if len(array.ids)), default=0)

    def probabilities(self, contexts: Ints, candidates: Ints) -> tuple[F64, F64]:
        """Return how likely each candidate is after each context, p [K, O, C], and the matched weight [K, O].

        p is the weighted mean of count / total over the pools that have seen the context; matched is the sum of
        their weights. A context that no pool has seen has p = 0 and matched = 0. Candidates are given once each,
        none below 0; p = 0 for what no pool can hold.
        """
        wanted = candidates.astype(np.int64)
        p = np.zeros((len(contexts), ORDER_COUNT, len(candidates)))
        matched = np.zeros((len(contexts), ORDER_COUNT))
        for k, context in enumerate(contexts):
            match = self._match(context)
            matched[k] = self._matched(match)
            for pool, weight in enumerate(self.weights):
                for order, total in enumerate(match.totals[pool]):
                    if total > 0:
                        each = np.zeros((len(self.weights), ORDER_COUNT))
                        each[pool, order] = 1  # so counts are whole, and what was subtracted leaves none
                        count = self._sum(match, wanted, each.tolist())
                        p[k, order] += count * (weight / (matched[k, order] * total))
        return p, matched

    def successors(self, contexts: Ints, n: int) -> I64:
        """Return the tokens that commonly followed the contexts, ascending, each once.

        Of each pool and context the n commonest, of equally common ones the lowest, after the longest end of the
        context that the pool knows a successor of.
        """
        found = [self._successors(self._match(context), n) for context in contexts]
        return np.unique(np.concatenate([np.empty(0, np.int64), *found]))

    def mix(
        self,
        contexts: Ints,
        candidates: Ints,
        p: Floats,
        order_weights: Sequence[Sequence[float]],
        odds: float = 1.0,
    ) -> F64:
        """Return a model's probabilities p, [C] or [K, C], of candidates mixed with those of the pools, [K, C].

        Mixed is (1 - sum_o w[o]) p + sum_o w[o] p_o, with p_o from `probabilities`. w is row m of the order
        weights [O + 1, O], m the length of the longest context matched, with its odds against p multiplied. A
        matched weight below 1 gives only so much of that row; the rest is of shorter contexts that more weight has
        matched, and of a row of zeros.
        """
        rows = np.broadcast_to(p, (len(contexts), len(candidates))).astype(np.float64)
        wanted = candidates.astype(np.int64)
        return np.array(
            [
                self._mix(self._match(context), wanted, row, order_weights, odds)
                for context, row in zip(contexts, rows, strict=True)
            ]
        )

    def mix_candidates(
        self, contexts: Ints, p: F32, n: int, order_weights: Sequence[Sequence[float]], odds: float = 1.0
    ) -> tuple[I64, F64]:
        """Return candidates of a model and of the pools, [C], and what `mix` makes of their probabilities, [K, C].

        p [V] is the model's probability, below 0 for tokens that must not follow. The candidates are its n
        likeliest and `successors`, ascending.
        """
        matches = [self._match(context) for context in contexts]
        found = np.concatenate([_likeliest(p, n), *(self._successors(match, n) for match in matches)])
        candidates = np.array(sorted(set(found.tolist())), np.int64)
        if self.max_tokens > len(p):
            candidates = candidates[candidates < len(p)]
        candidates = candidates[p.take(candidates) >= 0]
        of_model = p.take(candidates).astype(np.float64)
        mixed = [self._mix(match, candidates, of_model, order_weights, odds) for match in matches]
        return candidates, np.array(mixed)

    def _match(self, context: Ints) -> _Match:
        """Look one context up."""
        known = context.tolist()
        if -1 in known:
            known = known[len(known) - known[::-1].index(-1) :]
        parts = []
        totals = [[0] * ORDER_COUNT for _ in self.weights]
        for pool, array, sign in self.parts:
            if not (spans := array.intervals(known, ORDER_COUNT)):
                continue
            wide = 0
            for order, (first, end) in enumerate(spans):
                totals[pool][order] += sign * (end - first)
                wide += end - first > WIDE
            places = spans[wide] if wide < len(spans) else (0, 0)
            parts.append(_Part(array, sign, pool, spans, wide, array.ids.take(array.following(*places))))
        return _Match(parts, totals)

    def _successors(self, match: _Match, n: int) -> I64:
        """`successors` of one context, which may recur."""
        found: list[Ints] = [np.empty(0, np.int64)]
        for pool, totals in enumerate(match.totals if n > 0 else ()):
            for order in range(ORDER_COUNT - 1, -1, -1):
                if totals[order] > 0 and len(tokens := _commonest(match, pool, order, n)):
                    found.append(tokens)
                    break
        return np.concatenate(found)

    def _matched(self, match: _Match) -> list[float]:
        """The weight of the pools that have seen the context. [O]"""
        matched = [0.0] * ORDER_COUNT
        for weight, totals in zip(self.weights, match.totals, strict=True):
            for order, total in enumerate(totals):
                if total > 0:
                    matched[order] += weight
        return matched

    def _mix(
        self, match: _Match, candidates: I64, p: F64, order_weights: Sequence[Sequence[float]], odds: float
    ) -> F64:
        """`mix` of one context. p [C] -> [C]"""
        matched = self._matched(match)
        given = 0.0  # to contexts so long or longer
        weights = [0.0] * ORDER_COUNT
        for order in range(ORDER_COUNT - 1, -1, -1):
            if matched[order] > given:
                row = order_weights[order + 1]
                reached = min(matched[order], 1.0)
                say = (reached - given) * odds / max(1 + (odds - 1) * sum(row), _TINY)
                weights = [weight + say * more for weight, more in zip(weights, row, strict=True)]
                given = reached
            if given == 1:
                break
        each = [w / weight if weight else 0.0 for w, weight in zip(weights, matched, strict=True)]
        shares = [
            [weight * say / total if total > 0 else 0.0 for say, total in zip(each, totals, strict=True)]
            for weight, totals in zip(self.weights, match.totals, strict=True)
        ]
        return (1 - sum(weights)) * p + self._sum(match, candidates, shares)

    def _sum(self, match: _Match, candidates: I64, shares: Sequence[Sequence[float]]) -> F64:
        """Add up what each place says for the candidate behind it: the shares [W, O] of its contexts. -> [C]"""
        size = len(candidates) + 1
        if not match.parts:
            return np.zeros(size - 1)
        # 1. Of each token that follows, find the column: 0 if it is no candidate.
        slots = np.zeros(max(self.max_tokens, int(candidates.max(initial=0)) + 1), np.int32)
        slots[candidates] = np.arange(1, size)
        columns = slots.take(np.concatenate([part.following for part in match.parts]))
        # 2. Weigh the places: what stands behind a longer context stands behind the shorter ones, too.
        weights = np.zeros(len(columns))
        at = 0
        for part in match.parts:
            spans = part.spans[part.wide :]
            for (first, end), share in zip(spans, shares[part.pool][part.wide :], strict=False):
                weights[at + first - spans[0][0] : at + end - spans[0][0]] += part.sign * share
            at += len(part.following)
        sums: F64 = np.bincount(columns, weights, size)[1:].astype(np.float64)
        # 3. Add what is listed.
        for part in match.parts:
            for span, share in zip(part.spans[: part.wide], shares[part.pool], strict=False):
                sums += part.sign * share * part.array.counts(*span, candidates)
        return sums


def _commonest(match: _Match, pool: int, order: int, n: int) -> Ints:
    """The n commonest tokens of a pool behind a context of one length, of equals the lowest.

    They may recur where there are n at most.
    """
    sums: Ints | F64
    parts = [part for part in match.parts if part.pool == pool and order < len(part.spans)]
    if all(part.sign > 0 and order >= part.wide for part in parts):
        tokens = np.concatenate([part.tokens(order) for part in parts])
        if len(tokens) <= n:
            return tokens
        tokens, sums = tally(tokens)
    else:
        sums = np.zeros(1 + max(int(part.array.ids[-1]) for part in parts))
        for part in parts:
            if order >= part.wide:
                counts: Ints = np.bincount(part.tokens(order))
                sums[: len(counts)] += part.sign * counts
            else:
                numbers, counts = part.array.tally(*part.spans[order])
                sums[part.array.ids.take(numbers)] += part.sign * counts.astype(np.int64)
        tokens = (sums > 0).nonzero()[0]
        sums = sums[tokens]
    if len(tokens) > n:
        least = np.partition(sums, -n)[-n]
        more = (sums > least).nonzero()[0]
        tokens = tokens[np.concatenate((more, (sums == least).nonzero()[0][: n - len(more)]))]
    return tokens


def _likeliest(p: F32, n: int) -> I64:
    """The n largest of p [V], none below 0; of equals the first."""
    # The largest of each group of tokens say which p the n-th largest has at least.
    largest = p[: len(p) // _GROUPS * _GROUPS].reshape(-1, _GROUPS).max(axis=0, initial=-1.0)
    least = np.partition(largest, -n)[-n] if 0 < n <= _GROUPS else 0.0
    found: I64 = (p >= max(least, 0.0)).nonzero()[0]
    if len(found) > n:
        values = p[found]
        least = np.partition(values, -n)[-n] if n else np.inf
        more = found[values > least]
        found = np.concatenate((more, found[values == least][: n - len(more)]))
    return found

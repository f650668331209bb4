"""How likely tokens are after histories, counted in suffix arrays, and mixed with the probabilities of a model.

Counts come from pools of arrays with weights. The arrays of a pool add up: a table's shards, new texts (+1), and
the texts of the table that they replace (-1). No order is stored: n-grams are counted in the interval of a context
of n - 1 tokens.

Dimensions: W pools, K histories, O orders from 2 on, M longest contexts seen, from none on, C candidates, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ngram_builders.arrays import F32, F64, I64, Floats, Ints
from ngram_builders.index.suffix_array import (
    WIDE,
    Occurrence,
    SearchedTexts,
    SuffixArray,
    find_occurrences,
    tally,
)

DEFAULT_WEIGHT = 0.7  # of a table where it was built; measured from 0.5 to 0.9, flat around this
ORDERS = (2, 3, 4, 5, 6)  # those of the paper
ORDER_COUNT = len(ORDERS)
PAPER_LAMBDAS = np.array([0.01, 0.04, 0.15, 0.18, 0.12])  # of orders 2 ... 6, appendix B of the paper
# Weight of each n-gram order beside a model that is sure of nothing (`doubt` 1), one row for each longest matched
# context, or none. Fitted by expectation maximisation beside the starter, on packages that neither it nor a table
# had seen, before there was doubt; fitted to other models or repositories they gained 2 % of perplexity at most.
ORDER_WEIGHTS = np.array(  # [M, O]
    [
        [0, 0, 0, 0, 0],
        [0.089, 0, 0, 0, 0],
        [0.048, 0.090, 0, 0, 0],
        [0.030, 0.090, 0.102, 0, 0],
        [0.019, 0.056, 0.119, 0.092, 0],
        [0.005, 0.035, 0.075, 0.123, 0.383],
    ]
)
_TINY = 1e-300
_GROUPS = 256  # of tokens: most of the likeliest twenty are in groups of their own

Histories = Sequence[Sequence[int]] | Ints  # the newest token last; -1 before the start of a text


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


class Mixture:
    """A weighted mixture of pools of counts, to be queried any number of times by any number of threads.

    Pools of weight 0 are left out. names: of the pools, for people. texts: those to copy from.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        weights: Sequence[float],
        names: Sequence[str] = (),
        texts: Sequence[SearchedTexts] = (),
    ) -> None:
        kept = [(pool, weight) for pool, weight in zip(pools, weights, strict=True) if weight > 0]
        self.names = tuple(names)
        self.texts = texts
        self.weights = [weight / DEFAULT_WEIGHT for _, weight in kept]
        self.parts = [(number, array, sign) for number, (pool, _) in enumerate(kept) for array, sign in pool]
        self.max_tokens = 1 + max((int(array.ids[-1]) for _, array, _ in self.parts if len(array.ids)), default=0)
        self.order_weights: list[list[float]] = ORDER_WEIGHTS.tolist()
        self.max_context = ORDER_COUNT  # tokens

    def adjusted(self, factor: float, longest: int) -> Mixture:
        """Return the mixture with `factor` times the odds against the model, and n-grams of `longest` at most.

        Example: factor 2, a row of order weights whose sum is 1/2 -> 2/3, shared among the orders as before.
        """
        if factor == 1 and longest >= ORDERS[-1]:
            return self
        other = copy(self)
        weights = np.array(self.order_weights)
        total = weights.sum(axis=-1, keepdims=True)
        other.order_weights = (factor * weights / (1 - total + factor * total)).tolist()
        other.max_context = longest - 1
        return other

    def occurrences(self, history: Sequence[int], follow: int) -> list[Occurrence]:
        """Return where the end of a history stands in the texts that were counted: see `find_occurrences`."""
        return find_occurrences(self.texts, history, follow)

    def __call__(self, histories: Histories, candidates: Ints) -> Floats:
        """p_ngram(x) = sum_n lambda_n p_n(x | last n-1 tokens), section 3.2 of the paper. -> [K, C]

        An order whose context no table has seen adds nothing, as in the paper.
        """
        p, _ = self.probabilities(histories, candidates)
        return np.asarray(np.einsum("o,koc->kc", PAPER_LAMBDAS, p))

    def probabilities(self, histories: Histories, candidates: Ints) -> tuple[F64, F64]:
        """Return how likely each candidate is after each history, p [K, O, C], and the matched weight [K, O].

        p is the weighted mean of count / total over the pools that have seen the context; matched is the sum of
        their weights, 1 for the usual one. A context that no pool has seen has p = 0 and matched = 0. Candidates
        are given once each, none below 0; p = 0 for what no pool can hold.
        """
        tokens = candidates.astype(np.int64)
        p = np.zeros((len(histories), ORDER_COUNT, len(candidates)))
        matched = np.zeros((len(histories), ORDER_COUNT))
        for k, history in enumerate(histories):
            match = self._match(history)
            matched[k] = self._matched(match)
            for pool, weight in enumerate(self.weights):
                for order, total in enumerate(match.totals[pool]):
                    if total > 0:
                        each = np.zeros((len(self.weights), ORDER_COUNT))
                        each[pool, order] = 1  # so counts are whole, and what was subtracted leaves none
                        count = self._sum(match, tokens, each.tolist())
                        p[k, order] += count * (weight / (matched[k, order] * total))
        return p, matched

    def mix(self, histories: Histories, candidates: Ints, p: Floats) -> F64:
        """Mix a model's probabilities p, [C] or [K, C], of candidates, each given once, with the pools'. -> [K, C]

        Mixed is (1 - sum_o w[o]) p + sum_o w[o] p_o, with p_o from `probabilities`. w is row m of the order
        weights, m the length of the longest context matched, with its odds multiplied by the model's `doubt`. A
        matched weight below 1 gives only so much of that row; the rest is of shorter contexts that more weight has
        matched, and of a row of zeros.

        Example: p .1, of a history only the bigram context seen, with p_2 .5 and w[2, 2] .09 -> .133.
        """
        rows = np.broadcast_to(p, (len(histories), len(candidates))).astype(np.float64)
        tokens = candidates.astype(np.int64)
        return np.array(
            [
                self._mix(self._match(history), tokens, row, _doubt(row.max(initial=0.0)))
                for history, row in zip(histories, rows, strict=True)
            ]
        )

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[I64, F64]:
        """Return the n likeliest tokens of p [V] and the `successors`, ascending, and `mix` of them: [C], [K, C].

        p is below 0 for tokens that must not follow.
        """
        p = np.ascontiguousarray(p, dtype=np.float32)
        total = p.sum()
        if total < 0.5:  # some must not follow
            total = np.maximum(p, 0).sum()
        doubt = _doubt(p.max(initial=0.0) / max(total, _TINY))
        matches = [self._match(history) for history in histories]
        found = np.concatenate([_likeliest(p, n), *(self._successors(match, n) for match in matches)])
        candidates = np.array(sorted(set(found.tolist())), np.int64)
        if self.max_tokens > len(p):
            candidates = candidates[candidates < len(p)]
        candidates = candidates[p.take(candidates) >= 0]
        of_model = p.take(candidates).astype(np.float64)
        return candidates, np.array([self._mix(match, candidates, of_model, doubt) for match in matches])

    def successors(self, histories: Histories, n: int) -> I64:
        """Return the tokens that commonly followed the histories, ascending, each once.

        Of each pool and history the n commonest, of equally common ones the lowest, after the longest context that
        the pool knows a successor of.
        """
        found = [self._successors(self._match(history), n) for history in histories]
        return np.unique(np.concatenate([np.empty(0, np.int64), *found]))

    def _match(self, history: Sequence[int] | Ints) -> _Match:
        """Look the end of a history up."""
        known = list(map(int, history[-self.max_context :]))
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
        """`successors` of one history, which may recur."""
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

    def _mix(self, match: _Match, candidates: I64, p: F64, odds: float) -> F64:
        """`mix` of one history. p [C] -> [C]"""
        matched = self._matched(match)
        given = 0.0  # to contexts so long or longer
        weights = [0.0] * ORDER_COUNT
        for order in range(ORDER_COUNT - 1, -1, -1):
            if matched[order] > given:
                row = self.order_weights[order + 1]
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
        """Add up, for each candidate, the shares [W, O] of the contexts that it follows. -> [C]"""
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


def _doubt(top: float) -> float:
    """The factor of the n-grams' odds beside a model whose likeliest token has this probability.

    So a model's strength is measured at every token: a good model is more often sure. With the starter, SmolLM2
    and Qwen2.5-Coder this one rule gives lines a higher likelihood than the best constant of each.
    Example: a row whose weights sum to 1/2, beside a token of .9 -> 1/11.
    """
    return max(1 - float(top), 0.0)


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

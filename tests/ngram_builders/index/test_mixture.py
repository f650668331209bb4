"""Probabilities and candidates are those of counting by hand, of added and subtracted texts, in weighted pools."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.index import mixture, suffix_array
from ngram_builders.index.mixture import DEFAULT_WEIGHT, ORDER_COUNT, Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from tests.ngram_builders.index.test_suffix_array import array_of, followers

Streams = list[list[int]]
TOKENS = 6
STREAMS = st.lists(st.lists(st.integers(0, TOKENS - 1), min_size=1, max_size=25), min_size=2, max_size=5)
CONTEXT = st.lists(st.integers(0, TOKENS), min_size=1, max_size=7)
CANDIDATES = np.arange(TOKENS + 2)


def counted(streams: Streams, context: list[int], order: int) -> Counter[int]:
    return followers(streams, context[-order:]) if order <= len(context) else Counter()


@given(STREAMS, STREAMS, CONTEXT, st.sampled_from([(1.0, 0.3), (0.2, 0.2), (1.0, 0.0)]))
def test_probabilities_are_counts_over_totals(
    first: Streams, second: Streams, context: list[int], weights: tuple[float, float]
) -> None:
    pools = Mixture([[Signed(array_of(first))], [Signed(array_of(second))]], weights)
    p, matched = pools.probabilities(np.array([context]), CANDIDATES)

    for order in range(ORDER_COUNT):
        counts = [counted(streams, context, order + 1) for streams in (first, second)]
        known = [(c, w) for c, w in zip(counts, weights, strict=True) if c and w]
        total = sum(w for _, w in known)
        expected = [sum(w * c[x] / c.total() for c, w in known) / total if known else 0 for x in range(TOKENS + 2)]
        assert matched[0, order] == pytest.approx(total / DEFAULT_WEIGHT)
        assert p[0, order] == pytest.approx(expected)


@given(STREAMS, st.data())
def test_what_is_subtracted_and_added_counts_as_if_it_were_sorted_anew(
    streams: Streams, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(streams) - 1))
    edited = data.draw(st.lists(st.integers(0, TOKENS - 1), min_size=1, max_size=25))
    context = np.array([data.draw(CONTEXT)])
    now = [*streams[:number], edited, *streams[number + 1 :]]
    changed = [Signed(array_of(streams)), Signed(array_of([streams[number]]), -1), Signed(array_of([edited]))]
    p = np.full(TOKENS, 1 / TOKENS, np.float32)
    one, other = Mixture([changed], [0.7]), Mixture([[Signed(array_of(now))]], [0.7])

    for found, expected in zip(
        one.probabilities(context, CANDIDATES), other.probabilities(context, CANDIDATES), strict=True
    ):
        assert found == pytest.approx(expected)
    for n in (1, 2, TOKENS):
        assert one.successors(context, n).tolist() == other.successors(context, n).tolist()
        mixed = [each.mix_top(context, p, n) for each in (one, other)]
        assert mixed[0][0].tolist() == mixed[1][0].tolist()
        assert mixed[0][1] == pytest.approx(mixed[1][1])


@given(STREAMS, CONTEXT, st.integers(1, 4))
def test_successors_are_the_commonest_after_the_longest_known_context(
    streams: Streams, context: list[int], n: int
) -> None:
    found = Mixture([[Signed(array_of(streams))]], [1.0]).successors(np.array([context]), n)

    known = [counted(streams, context, order) for order in range(ORDER_COUNT, 0, -1)]
    longest = next((counts for counts in known if counts), Counter[int]())
    commonest = sorted(longest, key=lambda token: (-longest[token], token))[:n]
    assert found.tolist() == sorted(commonest)


def test_wide_contexts_count_as_narrow_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    streams = [2 * rng.integers(0, TOKENS, 300) for _ in range(4)]  # half of the candidates do not occur
    contexts = 2 * rng.integers(0, TOKENS, (40, 6))
    candidates = np.arange(2 * TOKENS + 2)

    def ask() -> list[object]:
        listed, plain = build_suffix_array(streams), build_suffix_array(streams[:1], lists=False)
        assert (len(listed.wide) > 0, len(plain.wide)) == (suffix_array.WIDE < 100, 0)
        pools = Mixture([[Signed(listed), Signed(plain, -1)]], [1.0])
        found = [
            *pools.probabilities(contexts, candidates),
            *(pools.successors(contexts, n) for n in (1, 3, TOKENS)),
        ]
        return [array.tolist() for array in found]

    narrow = ask()
    for module in (mixture, suffix_array):
        monkeypatch.setattr(module, "WIDE", 5)
    assert ask() == narrow


def test_mixing_gives_the_model_what_the_orders_leave() -> None:
    counts = Mixture([[Signed(array_of([[1, 2, 1, 2, 1, 3]]))]], [1.0])
    counts.order_weights = [[0.0] * ORDER_COUNT, *[[0.5, *[0.0] * (ORDER_COUNT - 1)]] * ORDER_COUNT]
    p = np.array([0.0, 0.1, 0.2, 0.7])

    mixed = counts.mix(np.array([[-1, 1], [-1, 9]]), np.arange(4), p)

    odds = 1 - 0.7  # the model is as sure as that
    share = odds * 0.5 / (0.5 + odds * 0.5)
    assert mixed[0] == pytest.approx((1 - share) * p + share * np.array([0, 0, 2 / 3, 1 / 3]))
    assert mixed[1] == pytest.approx(p)  # no pool knows token 9


def test_what_may_not_follow_is_no_candidate() -> None:
    p = np.array([0.4, -1, 0.3, -1, 0.2], np.float32)
    counts = Mixture([[Signed(array_of([[0, 1, 0, 1, 0, 2, 0, 4, 0, 9, 0, 9]]))]], [1.0])

    counts.order_weights = np.zeros((ORDER_COUNT + 1, ORDER_COUNT)).tolist()
    ids, mixed = counts.mix_top(np.array([[0]]), p, 2)

    assert ids.tolist() == [
        0,
        2,
    ]  # the commonest are 1, which may not follow, and 9, which is no token of the model
    assert mixed[0].tolist() == pytest.approx(p[ids].tolist())


@pytest.mark.parametrize("size", [200, 1_000])  # fewer tokens than groups, and some that are in none
@pytest.mark.parametrize("n", [0, 1, 3, 50, 300])
def test_the_likeliest_are_those_of_a_full_sort(n: int, size: int) -> None:
    rng = np.random.default_rng(n)
    for spread in (1, 8, 30):
        p = np.exp(-spread * rng.random(size)).astype(np.float32)
        p[rng.integers(0, size, 40)] = p[0]
        p[rng.integers(0, size, 40)] = -1
        found = np.sort(mixture._likeliest(p, n)).tolist()
        order = [int(i) for i in np.argsort(-p, kind="stable") if p[i] >= 0]
        assert found == sorted(order[:n])

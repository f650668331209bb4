"""Medians with spread, and ratios only where they show something."""

from __future__ import annotations

import pytest

from spd_lsp.evaluation.bench.clocks import Clocks, Spread, Timing, ms_per_token, now, ratio


def run_of(seconds: float, tokens: int = 5) -> Timing:
    return Timing(Clocks(9, 9), Clocks(2 * seconds, seconds), tokens, tokens, tokens - 1)


def test_a_token_is_the_time_after_the_first_token_shared_among_the_others():
    runs = [run_of(0.4), run_of(0.8)]
    assert ms_per_token(runs, lambda clocks: clocks.cpu) == pytest.approx([100, 200])
    assert ms_per_token(runs, lambda clocks: clocks.wall) == pytest.approx([200, 400])


def test_a_spread_is_the_median_and_the_quartiles():
    assert Spread.of([5, 1, 3, 2, 4]) == Spread(3, 2, 4)
    assert Spread.of([7]) == Spread(7, 7, 7)


def test_a_ratio_compares_within_rounds_so_that_a_slow_round_does_not_count():
    found = ratio([2, 20, 2.2, 2], [1, 10, 1, 1])
    assert found.median == pytest.approx(2)
    assert found.high < 2.2


@pytest.mark.parametrize(
    ("values", "shown"),
    [([1.1, 1.2, 1.3], True), ([0.8, 0.9, 0.7], True), ([0.9, 1.0, 1.1], False), ([0.5, 1.4, 1.5, 0.6], False)],
)
def test_a_ratio_shows_a_difference_only_if_its_quartiles_agree(values, shown):
    assert Spread.of(values).differs == shown


def test_both_clocks_go_forward():
    began = now()
    sum(range(100_000))
    taken = now() - began
    assert taken.wall > 0
    assert taken.cpu > 0
    assert began + taken - began == Clocks(pytest.approx(taken.wall), pytest.approx(taken.cpu))

"""Means of grouped measurements."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.evaluation.bootstrap import Interval, mean_interval, mean_intervals


def test_the_value_is_the_plain_mean_of_what_is_there() -> None:
    groups = [("a", "x"), ("a", "x"), ("b", "y")]
    first, second = mean_intervals(np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, 6.0]]), groups)
    assert (first.mean, second.mean) == (2.0, 4.0)


def test_measurements_of_one_file_count_as_one_draw() -> None:
    """Ten copies of a file's value say no more than one: the interval does not narrow."""
    random = np.random.default_rng(0)
    values = random.normal(size=20)
    groups = [("r", str(n)) for n in range(20)]
    once = mean_interval(values, groups)
    often = mean_interval(np.repeat(values, 10), [group for group in groups for _ in range(10)])
    assert often.low == pytest.approx(once.low)
    assert often.high == pytest.approx(once.high)
    apart = mean_interval(np.repeat(values, 10), [("r", str(n)) for n in range(200)])
    assert apart.high - apart.low < 0.5 * (once.high - once.low)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    groups = [(str(n // 6), str(n)) for n in range(60)]
    covered = 0
    for seed in range(60):
        values = random.normal(size=10)[np.arange(60) // 6] + random.normal(size=60)
        found = mean_interval(values, groups, seed)
        covered += found.low <= 0 <= found.high
    assert 48 <= covered <= 60  # ten repositories are few: a little under 95 %


def test_nothing_measured_has_no_mean() -> None:
    found = mean_interval([float("nan")], [("a", "x")])
    assert np.isnan([found.mean, found.low, found.high]).all()


def test_a_mean_is_written_with_its_interval() -> None:
    assert f"{Interval(1.0, 0.5, 2.0):.1f}" == "1.0 (0.5 to 2.0)"

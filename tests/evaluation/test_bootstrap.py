"""Intervals treat packages and files as what is drawn, and arms as pairs."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.evaluation.bootstrap import Bootstrap, Interval, mean_intervals, resample_counts

ONES = np.ones


def test_every_repetition_draws_as_many_packages_and_files_as_there_are():
    counts = resample_counts(["a", "a", "b", "c"], np.random.default_rng(0), 200)
    assert counts.shape == (200, 4)
    in_a = counts[:, :2].sum(axis=1)
    assert (in_a % 2 == 0).all(), "package a comes with two files each time"
    assert (in_a / 2 + counts[:, 2] + counts[:, 3] == 3).all()


def test_the_mean_is_over_places_and_the_interval_holds_it():
    values = np.array([[1.0], [0.0], [1.0], [1.0]])
    bootstrap = Bootstrap(["a", "a", "b", "b"], ["x", "y", "z", "w"])
    (found,) = bootstrap.intervals(values, ONES((4, 1)))
    assert found.mean == 0.75
    assert found.low <= 0.75 <= found.high


def test_ratios_are_of_sums():
    bootstrap = Bootstrap(["a", "b"], ["x", "y"])
    (found,) = bootstrap.intervals(np.array([[1.0], [9.0]]), np.array([[10.0], [10.0]]))
    assert found.mean == 0.5


def test_packages_that_differ_widen_the_interval_more_than_places_narrow_it():
    packages = [name for name in "abcdefgh" for _ in range(50)]
    files = [str(i // 2) for i in range(400)]
    clustered = np.repeat([1.0, 0, 1, 0, 1, 0, 1, 0], 50)[:, None]
    mixed = np.tile([1.0, 0.0], 200)[:, None]
    bootstrap = Bootstrap(packages, files)
    wide, narrow = (bootstrap.intervals(v, ONES((400, 1)))[0] for v in (clustered, mixed))
    assert wide.mean == narrow.mean == 0.5
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_differences_are_paired():
    random = np.random.default_rng(1)
    hard = (random.random((300, 1)) < 0.5).astype(float)
    both = np.hstack([hard, hard])
    both[:30, 1] = 1.0
    packages, files = [str(i % 10) for i in range(300)], [str(i) for i in range(300)]
    bootstrap = Bootstrap(packages, files)
    difference = bootstrap.differences(both, ONES((300, 2)), 0)[1]
    assert bootstrap.differences(both, ONES((300, 2)), 0)[0].high == 0
    assert difference.mean == pytest.approx(float((both[:, 1] - both[:, 0]).mean()))
    alone = bootstrap.intervals(both, ONES((300, 2)))
    assert difference.high - difference.low < alone[0].high - alone[0].low


def test_the_width_is_that_of_theory_where_nothing_clusters():
    random = np.random.default_rng(2)
    values = (random.random((500, 1)) < 0.3).astype(float)
    names = [str(i) for i in range(500)]
    (found,) = Bootstrap(names, names).intervals(values, ONES((500, 1)))
    theory = 2 * 1.96 * (0.3 * 0.7 / 500) ** 0.5
    # A package of one file is drawn once, its file within it for certain: the plain bootstrap.
    assert found.high - found.low == pytest.approx(theory, rel=0.1)


def test_nothing_to_divide_by_is_no_number():
    (found,) = Bootstrap(["a"], ["x"]).intervals(np.zeros((1, 1)), np.zeros((1, 1)))
    assert np.isnan(found.mean)


def test_a_mean_is_of_what_was_measured_and_written_with_its_interval():
    groups = [("a", "x"), ("a", "x"), ("b", "y")]
    first, second = mean_intervals(np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, 6.0]]), groups)
    assert (first.mean, second.mean) == (2.0, 4.0)
    assert f"{Interval(1.0, 0.5, 2.0):.1f}" == "1.0 (0.5 to 2.0)"

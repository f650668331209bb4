"""Intervals treat packages and files as what is drawn, and arms as pairs."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.evaluation.bootstrap import RESAMPLES, Bootstrap


def naive_interval(parts, wholes, packages, files):
    """Draw packages, then for each of them as many files as it has, one by one."""
    random = np.random.default_rng(1)
    by_package = {}
    for part, whole, package, file in zip(parts, wholes, packages, files, strict=True):
        by_package.setdefault(package, {}).setdefault(file, []).append((part, whole))
    ratios = []
    for _ in range(RESAMPLES):
        drawn = []
        for package in random.choice(list(by_package), len(by_package)):
            of_package = list(by_package[package].values())
            for file in random.integers(len(of_package), size=len(of_package)):
                drawn += of_package[file]
        part, whole = np.sum(drawn, axis=0)
        ratios.append(part / whole)
    return np.percentile(ratios, (2.5, 97.5))


def test_intervals_are_those_of_drawing_packages_and_then_files_one_by_one():
    random = np.random.default_rng(0)
    packages = random.choice(list("abcdef"), 200).tolist()
    files = random.integers(0, 5, 200).astype(str).tolist()
    wholes = random.integers(1, 9, 200).astype(float)
    parts = wholes * (random.random(200) < np.array([0.1 + 0.12 * "abcdef".index(one) for one in packages]))
    (found,) = Bootstrap(packages, files).intervals(parts[:, None], wholes[:, None])
    low, high = naive_interval(parts, wholes, packages, files)
    assert found.mean == pytest.approx(parts.sum() / wholes.sum())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


def test_differences_are_paired():
    random = np.random.default_rng(1)
    hard = (random.random((300, 1)) < 0.5).astype(float)
    both = np.hstack([hard, hard])
    both[:30, 1] = 1.0
    ones = np.ones((300, 2))
    bootstrap = Bootstrap([str(i % 10) for i in range(300)], [str(i) for i in range(300)])
    same, difference = bootstrap.differences(both, ones, 0)
    assert same.high == 0
    assert difference.mean == pytest.approx(float((both[:, 1] - both[:, 0]).mean()))
    alone = bootstrap.intervals(both, ones)
    assert difference.high - difference.low < alone[0].high - alone[0].low

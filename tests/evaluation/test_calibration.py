"""Weights are recovered from candidates drawn by them; a package is judged by the others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from spd_lsp.completion.ranking import FORESEEN, WITH_NGRAMS, Match, calibrate
from spd_lsp.evaluation.calibration import (
    cross_validated,
    fit_logistic,
    read_candidates,
)

ARM = "superposed@none"


def record(package, candidates, target="x"):
    return {"example": {"package": package, "target": target}, "arms": {ARM: {"candidates": candidates}}}


def evidence(n, seed=0):
    """Scores and matches at random; some candidates have no match, and some no score."""
    random = np.random.default_rng(seed)
    matches = [(int(random.integers(2, 20)), count, count + int(random.integers(0, 4))) for count in [1, 2, 3, 4]]
    kinds = random.integers(0, 5, n)
    return [
        (float(random.beta(0.3, 1.5)) if kind != 1 else 0.0, matches[kind - 1] if kind else None) for kind in kinds
    ]


def probabilities(found):
    return [calibrate(score, match and Match(*match, files=1), WITH_NGRAMS) for score, match in found]


def drawn(n=5_000, seed=0):
    """Candidates that are right as often as `calibrate` says."""
    random, found = np.random.default_rng(seed), evidence(n, seed)
    right = random.random(n) < np.array(probabilities(found))
    packages = random.choice(["a", "b", "c"], n)
    rows = [
        record(package, [["x" if is_right else "y", *of]])
        for package, is_right, of in zip(packages, right, found, strict=True)
    ]
    return read_candidates(rows, ARM)


def test_the_weights_by_which_candidates_were_drawn_are_found():
    seen = drawn(20_000)
    assert fit_logistic(seen.factors, seen.right) == pytest.approx(list(WITH_NGRAMS), abs=0.5)


def test_what_is_said_is_the_product_formula():
    found = evidence(50)
    seen = read_candidates([record("a", [["x", *one] for one in found]), record("b", [["y", 0.5, None]])], ARM)
    expected = [*probabilities(found), calibrate(0.5, None, WITH_NGRAMS)]
    assert FORESEEN / (1 + np.exp(-seen.factors @ np.array(WITH_NGRAMS))) == pytest.approx(expected)


def test_a_package_has_no_say_in_its_own_weights():
    seen = drawn(3_000)
    own = seen.package == "a"
    turned = dataclasses.replace(seen, right=np.where(own, 1 - seen.right, seen.right))
    assert cross_validated(turned)[own] == pytest.approx(cross_validated(seen)[own])

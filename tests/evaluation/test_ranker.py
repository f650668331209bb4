"""Weights are recovered from candidates drawn by them; a package is judged by the others."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.ranking import FEATURES
from spd_lsp.evaluation.ranker import (
    Candidates,
    calibration_error,
    candidates_of,
    cross_validated,
    describe_fit,
    fit_weights,
    log_loss,
    share_right,
)

WEIGHTS = np.linspace(-1, 1, len(FEATURES))


def drawn(n=20_000, seed=0):
    """Candidates that are right as often as WEIGHTS say."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(n, len(FEATURES)))
    features[:, 0] = 1
    right = (random.random(n) < 1 / (1 + np.exp(-features @ WEIGHTS))).astype(float)
    return Candidates(features, right, random.choice(["a", "b", "c"], n), np.arange(n) // 5)


def test_the_weights_by_which_candidates_were_drawn_are_found():
    assert fit_weights(drawn()) == pytest.approx(WEIGHTS, abs=0.15)


def test_what_is_said_of_packages_that_it_was_not_fitted_on_is_so():
    seen = drawn()
    told = cross_validated(seen)
    assert calibration_error(told, seen.right) < 0.02
    assert log_loss(told, seen.right) < log_loss(np.full(len(told), seen.right.mean()), seen.right)


def test_a_package_has_no_say_in_its_own_weights():
    seen = drawn(3_000)
    own = seen.package == "a"
    turned = Candidates(seen.features, np.where(own, 1 - seen.right, seen.right), seen.package, seen.example)
    assert cross_validated(turned)[own] == pytest.approx(cross_validated(seen)[own])


def test_candidates_that_a_feature_tells_apart_without_fault_have_finite_weights():
    x = np.linspace(-1, 1, 200)[:, None]
    seen = Candidates(x, (x[:, 0] > 0).astype(float), np.repeat(["a", "b"], 100), np.arange(200))
    assert np.isfinite(fit_weights(seen)).all()


def test_gap_and_loss_of_a_few():
    right = np.array([0.0, 1.0] * 10)
    assert calibration_error(np.full(20, 0.5), right) == pytest.approx(0)
    assert calibration_error(np.full(20, 0.9), right) == pytest.approx(0.4)
    assert log_loss(np.full(20, 0.5), right) == pytest.approx(np.log(2))


def test_the_right_one_counts_among_the_k_likeliest_of_its_example():
    right = np.array([0.0, 1, 0, 0, 1])
    seen = Candidates(np.zeros((5, 1)), right, np.repeat("a", 5), np.array([0, 0, 0, 1, 1]))
    p = np.array([0.9, 0.5, 0.1, 0.2, 0.8])
    assert share_right(p, seen, 1) == 0.5
    assert share_right(p, seen, 2) == 1


def record(package, features, target="x"):
    return {"example": {"package": package, "target": target}, "arms": {"superposed@none": {"features": features}}}


def test_all_candidates_of_an_arm_are_taken_from_the_records():
    row = [float(n) for n in range(len(FEATURES))]
    records = [record("a", [["x", *row], ["y", *row]]), record("b", [["z", *row]]), {"example": {"package": "c"}}]
    seen = candidates_of(records, "superposed@none")
    assert seen.features.tolist() == [row] * 3
    assert seen.right.tolist() == [1, 0, 0]
    assert seen.example.tolist() == [0, 0, 1]
    assert f'"{FEATURES[0]}": ' in describe_fit("superposed@none", seen)


def test_results_that_cannot_be_fitted_are_named():
    with pytest.raises(UserError, match="candidates of beam in two packages"):
        candidates_of([record("a", [["x", 1.0]])], "beam")
    with pytest.raises(UserError, match=f"1 features, not {len(FEATURES)}"):
        candidates_of([record("a", [["x", 1.0]]), record("b", [["x", 1.0]])], "superposed@none")

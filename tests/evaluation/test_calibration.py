"""Calibration weights are recovered from drafts sampled by them; a package is judged by the others."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.calibration import WITH_NGRAMS, calibrate
from spd_lsp.evaluation.calibration import (
    ShownDrafts,
    calibration_error,
    cross_validated,
    describe_fit,
    fit_logistic_weights,
    log_loss,
    predict,
    shown_drafts,
)


def drawn(n=20_000, seed=0):
    """Drafts that are right as often as `share_right` says."""
    random = np.random.default_rng(seed)
    p, first = random.beta(0.3, 1.5, n), (random.random(n) < 0.4).astype(float)
    share = [calibrate(p_i, WITH_NGRAMS, first=bool(f)) for p_i, f in zip(p, first, strict=True)]
    right = (random.random(n) < np.array(share)).astype(float)
    return ShownDrafts(p, first, right, random.choice(["a", "b", "c"], n))


def test_the_weights_by_which_drafts_were_drawn_are_found():
    (c, a, b), (later_c, later_a, _) = WITH_NGRAMS
    assert fit_logistic_weights(drawn()) == pytest.approx([c, a, later_c, later_a, b], abs=0.3)


def test_what_is_said_is_the_product_formula():
    seen = drawn(50)
    (c, a, b), (later_c, later_a, _) = WITH_NGRAMS
    expected = [calibrate(p, WITH_NGRAMS, first=bool(first)) for p, first in zip(seen.p, seen.first, strict=True)]
    assert predict(seen, np.array([c, a, later_c, later_a, b])) == pytest.approx(expected)


def test_calibration_gains_where_it_was_not_fitted():
    seen = drawn()
    told = cross_validated(seen)
    assert 2 * calibration_error(told, seen.right) < calibration_error(seen.p, seen.right)
    assert log_loss(told, seen.right) < log_loss(seen.p, seen.right)


def test_a_package_has_no_say_in_its_own_weights():
    seen = drawn(3_000)
    own = seen.package == "a"
    turned = ShownDrafts(seen.p, seen.first, np.where(own, 1 - seen.right, seen.right), seen.package)
    assert cross_validated(turned)[own] == pytest.approx(cross_validated(seen)[own])


def test_drafts_that_p_tells_apart_without_fault_have_finite_weights():
    p = np.linspace(0.01, 0.99, 200)
    seen = ShownDrafts(p, np.ones(200), (p > 0.5).astype(float), np.repeat(["a", "b"], 100))
    assert np.isfinite(fit_logistic_weights(seen)).all()


def test_gap_and_loss_of_a_few():
    right = np.array([0.0, 1.0] * 10)
    assert calibration_error(np.full(20, 0.5), right) == pytest.approx(0)
    assert calibration_error(np.full(20, 0.9), right) == pytest.approx(0.4)
    assert log_loss(np.full(20, 0.5), right) == pytest.approx(np.log(2))


def record(package, drafts, probabilities, target="x"):
    arms = {"greedy@none": {"drafts": drafts, "probabilities": probabilities}}
    return {"example": {"package": package, "target": target}, "arms": arms}


def test_all_drafts_of_an_arm_are_taken_from_the_records():
    records = [record("a", ["x", "y"], [0.5, 0.2]), record("b", ["z"], [0.1]), {"example": {"package": "c"}}]
    seen = shown_drafts(records, "greedy@none")
    assert seen.p.tolist() == [0.5, 0.2, 0.1]
    assert seen.first.tolist() == [1, 0, 1]
    assert seen.right.tolist() == [1, 0, 0]
    assert describe_fit("greedy@none", seen).startswith("greedy@none, 3 drafts: ((")


def test_an_arm_that_was_not_asked_is_named():
    with pytest.raises(UserError, match="drafts of beam in two packages"):
        shown_drafts([record("a", ["x"], [0.5])], "beam")

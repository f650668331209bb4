"""Fit the weights of `spd_lsp.completion.calibration`: how often drafts of some probability are an exact match.

Beta calibration by maximum likelihood. What it gains is measured by cross-validation: each package is judged by
weights fitted to the others.

Dimensions: N drafts. Five weights: c and a of first drafts, c and a of later ones, b of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64
from ngram_builders.errors import UserError
from spd_lsp.completion.calibration import MIN_PROBABILITY
from spd_lsp.evaluation.quality.store import Record

_BINS = 10  # of the calibration error
_PENALTY = 1e-3  # on squared weights, which diverge where p separates right from wrong perfectly
_STEPS = 100


@dataclass(frozen=True, slots=True)
class ShownDrafts:
    """Drafts that were shown."""

    p: F64  # what each was ranked by [N]
    first: F64  # 1 for the first draft of its example [N]
    right: F64  # 1 for an exact match [N]
    package: npt.NDArray[np.str_]  # [N]

    def where(self, chosen: npt.NDArray[np.bool_]) -> ShownDrafts:
        """Some of them."""
        return ShownDrafts(self.p[chosen], self.first[chosen], self.right[chosen], self.package[chosen])


def shown_drafts(records: Sequence[Record], label: str) -> ShownDrafts:
    """All drafts of an arm; raise UserError for fewer than two packages."""
    rows = [
        (p, rank == 0, draft == record["example"]["target"], record["example"]["package"])
        for record in records
        if (result := record.get("arms", {}).get(label))
        for rank, (draft, p) in enumerate(zip(result["drafts"], result["probabilities"], strict=True))
    ]
    if len({package for *_, package in rows}) < 2:
        raise UserError(f"calibration needs drafts of {label} in two packages or more; run eval quality with them")
    p, first, right, package = zip(*rows, strict=True)
    return ShownDrafts(np.array(p), np.array(first, float), np.array(right, float), np.array(package))


def _features(drafts: ShownDrafts) -> F64:
    """The factors of the weights. [N, 5]"""
    p, first = np.clip(drafts.p, MIN_PROBABILITY, 1 - MIN_PROBABILITY), drafts.first
    return np.stack([first, first * np.log(p), 1 - first, (1 - first) * np.log(p), -np.log1p(-p)], axis=1)


def fit_logistic_weights(drafts: ShownDrafts) -> F64:
    """Maximise the likelihood by Newton's method. -> [5]"""
    x, weights = _features(drafts), np.array([0, 1, 0, 1, 1.0])
    for _ in range(_STEPS):
        q = _logistic(x @ weights)
        gradient = x.T @ (q - drafts.right) + _PENALTY * weights
        hessian = (x * (q * (1 - q))[:, None]).T @ x + _PENALTY * np.eye(5)
        step = np.linalg.solve(hessian, gradient)
        while (
            _objective(x, drafts.right, weights - step) > _objective(x, drafts.right, weights)
            and np.abs(step).max() > 1e-9
        ):
            step /= 2
        weights = weights - step
    return weights


def _objective(x: F64, right: F64, weights: F64) -> float:
    z = x @ weights
    return float(np.logaddexp(0, z).sum() - right @ z + _PENALTY / 2 * weights @ weights)


def _logistic(z: F64) -> F64:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0, -z)))


def predict(drafts: ShownDrafts, weights: F64) -> F64:
    """The calibrated probability of each draft. [N]"""
    return _logistic(_features(drafts) @ weights)


def cross_validated(drafts: ShownDrafts) -> F64:
    """The calibrated probability of each draft by weights from the other packages. [N]"""
    predicted = np.empty(len(drafts.p))
    for package in np.unique(drafts.package):
        own = drafts.package == package
        predicted[own] = predict(drafts.where(own), fit_logistic_weights(drafts.where(~own)))
    return predicted


def calibration_error(predicted: F64, right: F64) -> float:
    """The expected calibration error over ten bins of equal size."""
    bins = np.array_split(np.argsort(predicted, kind="stable"), min(_BINS, len(predicted)))
    return float(sum(len(b) * abs(predicted[b].mean() - right[b].mean()) for b in bins) / len(predicted))


def log_loss(predicted: F64, right: F64) -> float:
    """The mean over drafts, in nats."""
    predicted = np.clip(predicted, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return float(-np.where(right > 0, np.log(predicted), np.log1p(-predicted)).mean())


def describe_fit(label: str, drafts: ShownDrafts) -> str:
    """An arm's weights as `completion.calibration` writes them, and what they gain."""
    c, a, later_c, later_a, b = fit_logistic_weights(drafts)
    held_out, right = cross_validated(drafts), drafts.right
    errors = [100 * calibration_error(p, right) for p in (drafts.p, held_out)]
    losses = [log_loss(p, right) for p in (drafts.p, held_out)]
    return (
        f"{label}, {len(drafts.p):,} drafts: "
        f"(({c:.2f}, {a:.2f}, {b:.2f}), ({later_c:.2f}, {later_a:.2f}, {b:.2f})); "
        f"calibration error {errors[0]:.1f} to {errors[1]:.1f} points, log loss {losses[0]:.3f} to {losses[1]:.3f}"
    )

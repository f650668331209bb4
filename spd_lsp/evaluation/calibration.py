"""Fit the weights of `spd_lsp.completion.ranking`: how often candidates with these features are an exact match.

A logistic model by maximum likelihood. What it gains is measured by cross-validation: each package is judged by
weights fitted to the others.

Dimensions: N candidates, 6 weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64
from ngram_builders.errors import UserError
from spd_lsp.completion.ranking import FORESEEN, MIN_PROBABILITY, UNWRITTEN, Match
from spd_lsp.evaluation.quality.report import Record

_BINS = 10  # of the calibration error
_PENALTY = 1e-3  # on squared weights, which diverge where p separates right from wrong perfectly
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Candidates:
    """Drafts and copies that completions were chosen from."""

    factors: F64  # of the weights [N, 6]
    scores: F64  # as the decoder gave them, 0 of copies [N]
    right: F64  # 1 for an exact match [N]
    package: npt.NDArray[np.str_]  # [N]


def read_candidates(records: Sequence[Record], label: str) -> Candidates:
    """All candidates of an arm; raise UserError for fewer than two packages."""
    rows = [
        (_factors(score, match), score, text == record["example"]["target"], record["example"]["package"])
        for record in records
        for text, score, match in record.get("arms", {}).get(label, {}).get("candidates", ())
    ]
    if len({package for *_, package in rows}) < 2:
        raise UserError(
            f"calibration needs candidates of {label} in two packages or more; run eval quality with such an arm"
        )
    factors, scores, right, package = zip(*rows, strict=True)
    return Candidates(np.array(factors), np.array(scores), np.array(right, float), np.array(package))


def _factors(score: float, match: tuple[int, int, int] | None) -> list[float]:
    """The features that the weights multiply, as in `calibrate`. -> [6]"""
    p = min(max(score, UNWRITTEN if match else MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    of_match = [1.0, math.log(match[0]), Match(*match, files=1).agreement] if match else [0.0] * 3
    return [1.0, math.log(p), -math.log(1 - p), *of_match]


def fit_logistic(x: F64, right: F64) -> F64:
    """Return the weights that maximise the likelihood, by Newton's method. -> [6]"""

    def objective(weights: F64) -> float:
        z = x @ weights
        return float((np.logaddexp(0, z) - right * z).sum() + _PENALTY / 2 * weights @ weights)

    weights = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        q = _logistic(x @ weights)
        gradient = x.T @ (q - right) + _PENALTY * weights
        hessian = (x * (q * (1 - q))[:, None]).T @ x + _PENALTY * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient)
        while objective(weights - step) > objective(weights) and np.abs(step).max() > 1e-9:
            step /= 2
        weights = weights - step
    return weights


def _logistic(z: F64) -> F64:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0, -z)))


def cross_validated(candidates: Candidates) -> F64:
    """Return each candidate's probability by the weights fitted to the other packages. -> [N]"""
    predicted = np.empty(len(candidates.scores))
    for package in np.unique(candidates.package):
        own = candidates.package == package
        weights = fit_logistic(candidates.factors[~own], candidates.right[~own])
        predicted[own] = FORESEEN * _logistic(candidates.factors[own] @ weights)
    return predicted


def describe_fit(label: str, candidates: Candidates) -> str:
    """Return an arm's weights as `completion.ranking` spells them, and the losses before and after."""
    weights = ", ".join(f"{weight:.2f}" for weight in fit_logistic(candidates.factors, candidates.right))
    right = candidates.right
    errors, losses = [], []
    for p in (candidates.scores, cross_validated(candidates)):
        # The expected calibration error over ten bins of equal size, and the mean log loss in nats.
        bins = np.array_split(np.argsort(p, kind="stable"), min(_BINS, len(p)))
        errors.append(100 * sum(len(b) * abs(p[b].mean() - right[b].mean()) for b in bins) / len(p))
        kept = np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        losses.append(-np.where(right > 0, np.log(kept), np.log1p(-kept)).mean())
    return (
        f"{label}, {len(right):,} candidates: Weights({weights}); "
        f"calibration error {errors[0]:.1f} to {errors[1]:.1f} points, log loss {losses[0]:.3f} to {losses[1]:.3f}"
    )

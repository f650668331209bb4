"""Fit the weights of `spd_lsp.completion.ranking`: of drafts like this one, how many are exactly right.

Logistic regression by maximum likelihood on the features that `eval quality` stores. What it gains is measured by
cross-validation: each package is judged by weights fitted to the others.

Dimensions: N candidates, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64
from ngram_builders.errors import UserError
from spd_lsp.completion.ranking import FEATURES
from spd_lsp.evaluation.quality.store import Record

_BINS = 10  # of the calibration error
_PENALTY = 1.0  # on squared weights, so that a feature of few candidates says little
_STEPS = 100
_LEAST = 1e-9  # probability with a finite logarithm


@dataclass(frozen=True, slots=True)
class Candidates:
    """All candidates of some examples."""

    features: F64  # [N, F]
    right: F64  # 1 for an exact match [N]
    package: npt.NDArray[np.str_]  # [N]
    example: npt.NDArray[np.int64]  # number of the example [N]

    def where(self, chosen: npt.NDArray[np.bool_]) -> Candidates:
        """Some of them."""
        return Candidates(self.features[chosen], self.right[chosen], self.package[chosen], self.example[chosen])


def candidates_of(records: Sequence[Record], label: str) -> Candidates:
    """All candidates of an arm; raise UserError for fewer than two packages, or for results without features."""
    rows = list(_rows(records, label))
    if len({package for *_, package, _ in rows}) < 2:
        raise UserError(
            f"the ranker needs candidates of {label} in two packages or more; run eval quality with them"
        )
    features, right, package, example = zip(*rows, strict=True)
    if len(features[0]) != len(FEATURES):
        raise UserError(f"these results hold {len(features[0])} features, not {len(FEATURES)}; measure them again")
    return Candidates(np.array(features), np.array(right), np.array(package), np.array(example))


def _rows(records: Sequence[Record], label: str) -> Iterator[tuple[list[float], float, str, int]]:
    """Of each candidate: its features, whether it is right, its package and the number of its example."""
    for number, record in enumerate(records):
        example = record["example"]
        for text, *features in record.get("arms", {}).get(label, {}).get("features", ()):
            yield features, float(text == example["target"]), example["package"], number


def fit_weights(candidates: Candidates) -> F64:
    """Maximise the likelihood by Newton's method. -> [F]"""
    x, right = candidates.features, candidates.right
    weights, penalty = np.zeros(x.shape[1]), _PENALTY * np.eye(x.shape[1])
    for _ in range(_STEPS):
        q = _logistic(x @ weights)
        gradient = x.T @ (q - right) + penalty @ weights
        step = np.linalg.solve((x * (q * (1 - q))[:, None]).T @ x + penalty, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def _logistic(z: F64) -> F64:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0, -z)))


def cross_validated(candidates: Candidates) -> F64:
    """The probability of each candidate by weights from the other packages. [N]"""
    predicted = np.empty(len(candidates.right))
    for package in np.unique(candidates.package):
        own = candidates.package == package
        predicted[own] = _logistic(candidates.features[own] @ fit_weights(candidates.where(~own)))
    return predicted


def calibration_error(predicted: F64, right: F64) -> float:
    """The expected calibration error over ten bins of equal size."""
    bins = np.array_split(np.argsort(predicted, kind="stable"), min(_BINS, len(predicted)))
    return float(sum(len(b) * abs(predicted[b].mean() - right[b].mean()) for b in bins) / len(predicted))


def log_loss(predicted: F64, right: F64) -> float:
    """The mean over candidates, in nats."""
    predicted = np.clip(predicted, _LEAST, 1 - _LEAST)
    return float(-np.where(right > 0, np.log(predicted), np.log1p(-predicted)).mean())


def share_right(predicted: F64, candidates: Candidates, k: int) -> float:
    """Of the examples with candidates, how many have the right one among the k likeliest."""
    order = np.lexsort((-predicted, candidates.example))
    example = candidates.example[order]
    starts = np.flatnonzero(np.diff(example, prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return float(candidates.right[order][rank < k].sum() / len(starts))


def describe_fit(label: str, candidates: Candidates) -> str:
    """An arm's weights as `completion.ranking` writes them, and what they are worth where they were not fitted."""
    weights, held_out = fit_weights(candidates), cross_validated(candidates)
    table = "\n".join(f'    "{name}": {weight:.2f},' for name, weight in zip(FEATURES, weights, strict=True))
    column = {name: candidates.features[:, number] for number, name in enumerate(FEATURES)}
    as_decoded = column["ln p"] - 99 * column["copy only"]
    right = [[100 * share_right(p, candidates, k) for k in (1, 3)] for p in (as_decoded, held_out)]
    error = 100 * calibration_error(held_out, candidates.right)
    return (
        f"{label}, {len(candidates.right):,} candidates:\n{table}\n"
        f"by weights from the other packages: calibration error {error:.1f} points, log loss "
        f"{log_loss(held_out, candidates.right):.3f}; the first is right in {right[1][0]:.1f} %, one of three in "
        f"{right[1][1]:.1f} % (in the decoder's order {right[0][0]:.1f} and {right[0][1]:.1f} %)"
    )

"""Weights for `spd_lsp.completion.calibration`: how often drafts with some probability were what was written.

In: records of places with an arm's drafts. Out: the weights of beta calibration, and what they gain where they
were not fitted: each package is judged by weights from the others. Writes nothing.

Legend: N drafts. Five weights: c and a of first drafts, c and a of later ones, b of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64
from ngram_builders.errors import UserError
from spd_lsp.completion.calibration import LEAST
from spd_lsp.evaluation.store import Record

_PARTS = 10  # of the drafts, by what is said of them, that `gap` looks at
_PENALTY = 1e-3  # on the squares of the weights, which have no end where p tells right from wrong without fault
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Seen:
    """Drafts that were shown."""

    p: F64  # what each was ranked by [N]
    first: F64  # 1 for the first of its place [N]
    right: F64  # 1 for what was written [N]
    package: npt.NDArray[np.str_]  # [N]

    def where(self, chosen: npt.NDArray[np.bool_]) -> Seen:
        """Some of them."""
        return Seen(self.p[chosen], self.first[chosen], self.right[chosen], self.package[chosen])


def observed(records: Sequence[Record], label: str) -> Seen:
    """All drafts of an arm."""
    found = [
        (p, place == 0, draft == record["place"]["target"], record["place"]["package"])
        for record in records
        if (reply := record.get("arms", {}).get(label))
        for place, (draft, p) in enumerate(zip(reply["drafts"], reply["probabilities"], strict=True))
    ]
    if len({package for *_, package in found}) < 2:
        raise UserError(f"expected drafts of {label} in two packages or more, found fewer; ask that arm first")
    p, first, right, package = zip(*found, strict=True)
    return Seen(np.array(p), np.array(first, float), np.array(right, float), np.array(package))


def _features(seen: Seen) -> F64:
    """What the weights are multiplied with. [N, 5]"""
    p = np.clip(seen.p, LEAST, 1 - LEAST)
    return np.stack(
        [seen.first, seen.first * np.log(p), 1 - seen.first, (1 - seen.first) * np.log(p), -np.log1p(-p)], axis=1
    )


def fit(seen: Seen) -> F64:
    """The likeliest weights, by Newton's method. [5]"""
    x, weights = _features(seen), np.array([0, 1, 0, 1, 1.0])
    for _ in range(_STEPS):
        q = _logistic(x @ weights)
        slope = x.T @ (q - seen.right) + _PENALTY * weights
        curve = (x * (q * (1 - q))[:, None]).T @ x + _PENALTY * np.eye(5)
        step = np.linalg.solve(curve, slope)
        while _cost(x, seen.right, weights - step) > _cost(x, seen.right, weights) and np.abs(step).max() > 1e-9:
            step /= 2
        weights = weights - step
    return weights


def _cost(x: F64, right: F64, weights: F64) -> float:
    """What `fit` makes small: -log p of all that was seen, and the penalty."""
    z = x @ weights
    return float(np.logaddexp(0, z).sum() - right @ z + _PENALTY / 2 * weights @ weights)


def _logistic(z: F64) -> F64:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0, -z)))


def said(seen: Seen, weights: F64) -> F64:
    """Of each draft, how often one like it is right by these weights. [N]"""
    return _logistic(_features(seen) @ weights)


def said_elsewhere(seen: Seen) -> F64:
    """The same, by weights from the other packages. [N]"""
    told = np.empty(len(seen.p))
    for package in np.unique(seen.package):
        own = seen.package == package
        told[own] = said(seen.where(own), fit(seen.where(~own)))
    return told


def gap(told: F64, right: F64) -> float:
    """How far what is said is from the share that is right: mean over ten parts of the drafts, by what is said."""
    parts = np.array_split(np.argsort(told, kind="stable"), min(_PARTS, len(told)))
    return float(sum(len(part) * abs(told[part].mean() - right[part].mean()) for part in parts) / len(told))


def loss(told: F64, right: F64) -> float:
    """-log of what was said of what happened, mean over drafts, in nats."""
    told = np.clip(told, LEAST, 1 - LEAST)
    return float(-np.where(right > 0, np.log(told), np.log1p(-told)).mean())


def as_line(label: str, seen: Seen) -> str:
    """An arm's weights as `confidence` writes them, and what they gain."""
    c, a, later_c, later_a, b = fit(seen)
    told = said_elsewhere(seen)
    return (
        f"{label}, {len(seen.p):,} drafts: "
        f"(({c:.2f}, {a:.2f}, {b:.2f}), ({later_c:.2f}, {later_a:.2f}, {b:.2f})); "
        f"gap {100 * gap(seen.p, seen.right):.1f} to {100 * gap(told, seen.right):.1f} points, "
        f"loss {loss(seen.p, seen.right):.3f} to {loss(told, seen.right):.3f}"
    )

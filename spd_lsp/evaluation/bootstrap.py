"""Confidence intervals where places cluster: packages are drawn again, and files within each drawn package.

In: parts and wholes of each place. Out: means with 95 % intervals, for each arm and for differences between arms,
which are paired: all arms are drawn together. Knows numbers only. With few packages such intervals are somewhat
too narrow, as those of all bootstraps of few clusters are.

Dimensions: F files, P packages, A arms, B repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, I64

REPETITIONS = 4_000
_FEWER = 1_000  # of `means`, which are asked of many columns
_LEVEL = 95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """Example: `1.0 (0.5 to 2.0)` by `.1f`."""
        return f"{self.mean:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


class Draws:
    """How often each file is drawn in each repetition."""

    def __init__(self, packages: Sequence[str], files: Sequence[str], seed: int = 0, b: int = REPETITIONS) -> None:
        """`packages` and `files`: of each place, in order; a file is told by its package and its name."""
        names = list(zip(packages, files, strict=True))
        distinct = sorted(set(names))
        places = {name: i for i, name in enumerate(distinct)}
        self.file_of: I64 = np.array([places[name] for name in names], dtype=np.int64)  # [places]
        self.counts = draw([package for package, _ in distinct], np.random.default_rng(seed), b)  # [B, F]

    def by_file(self, values: F64) -> F64:
        """The sums of the places' values in each file. [places, A] -> [F, A]"""
        sums = np.zeros((self.counts.shape[1], values.shape[1]))
        np.add.at(sums, self.file_of, values)
        return sums

    def means(self, parts: F64, wholes: F64) -> tuple[F64, F64]:
        """Sum of parts over sum of wholes: [places, A] twice -> over all places [A], by repetition [B, A]."""
        part, whole = self.by_file(parts), self.by_file(wholes)
        drawn = _ratio(self.counts @ part, self.counts @ whole)
        return _ratio(part.sum(axis=0), whole.sum(axis=0)), drawn

    def intervals(self, parts: F64, wholes: F64) -> list[Interval]:
        """Each arm's mean. -> [A]"""
        return [_interval(*both) for both in columns(*self.means(parts, wholes))]

    def differences(self, parts: F64, wholes: F64, against: int) -> list[Interval]:
        """Each arm's mean less that of the arm `against`. -> [A]"""
        mean, drawn = self.means(parts, wholes)
        return [_interval(*both) for both in columns(mean - mean[against], drawn - drawn[:, [against]])]


def draw(packages: Sequence[str], rng: np.random.Generator, b: int) -> F64:
    """How often each file is drawn: `packages` [F] says where it belongs. -> [B, F]

    A package drawn c times has its n files drawn c times n times, with equal chances.
    """
    names, members = np.unique(np.array(packages), return_inverse=True)
    times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=b)  # [B, P]
    counts = np.zeros((b, len(packages)))
    for p in range(len(names)):
        files = np.flatnonzero(members == p)
        counts[:, files] = rng.multinomial(times[:, p] * len(files), np.full(len(files), 1 / len(files)))
    return counts


def _ratio(part: F64, whole: F64) -> F64:
    """part / whole, not a number where there is nothing."""
    means: F64 = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return means


def columns(mean: F64, drawn: F64) -> list[tuple[float, F64]]:
    """Each arm's mean with its repetitions."""
    return [(float(mean[a]), drawn[:, a]) for a in range(len(mean))]


def _interval(mean: float, drawn: F64) -> Interval:
    """The middle 95 % of what was drawn."""
    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return Interval(mean, float("nan"), float("nan"))
    low, high = np.percentile(finite, [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2])
    return Interval(mean, float(low), float(high))


def means(values: npt.ArrayLike, groups: Sequence[tuple[str, str]], seed: int = 0) -> list[Interval]:
    """The mean of each column [N, M], nan left out, with its interval; `groups` are (repository, file) [N].

    With one repository only files are drawn, which says nothing of other repositories.
    """
    found = np.asarray(values, dtype=np.float64)
    there = np.isfinite(found)
    repositories, files = zip(*groups, strict=True)
    draws = Draws(repositories, files, seed, _FEWER)
    return draws.intervals(np.where(there, found, 0.0), there.astype(np.float64))


def mean(values: npt.ArrayLike, groups: Sequence[tuple[str, str]], seed: int = 0) -> Interval:
    """The mean of one measure [N]."""
    return means(np.asarray(values, dtype=np.float64)[:, None], groups, seed)[0]

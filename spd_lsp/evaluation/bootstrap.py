"""Bootstrap confidence intervals for clustered examples: packages are resampled, then files within each package.

Intervals of differences are paired: one resample serves all columns. With few packages the intervals are somewhat
too narrow, as with every bootstrap of few clusters.

Dimensions: N examples, F files, P packages, A columns (arms or measures), B resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, I64

RESAMPLES = 4_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """Example: `1.0 (0.5 to 2.0)` by `.1f`."""
        return f"{self.mean:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


class Bootstrap:
    """Resamples of packages and their files, as the number of times that each file was drawn."""

    def __init__(self, packages: Sequence[str], files: Sequence[str]) -> None:
        """`packages` and `files` of each example; two packages may have files of one name."""
        names = list(zip(packages, files, strict=True))
        distinct = sorted(set(names))
        index = {name: i for i, name in enumerate(distinct)}
        self._file_of: I64 = np.array([index[name] for name in names], dtype=np.int64)  # [N]

        # A package drawn c times has its n files drawn c times n times, with equal probability.
        rng = np.random.default_rng(0)
        owners, members = np.unique([package for package, _ in distinct], return_inverse=True)
        times = rng.multinomial(len(owners), np.full(len(owners), 1 / len(owners)), size=RESAMPLES)  # [B, P]
        self._counts: F64 = np.zeros((RESAMPLES, len(distinct)))  # [B, F]
        for p in range(len(owners)):
            own = np.flatnonzero(members == p)
            self._counts[:, own] = rng.multinomial(times[:, p] * len(own), np.full(len(own), 1 / len(own)))

    def intervals(self, parts: F64, wholes: F64) -> list[Interval]:
        """Sum of parts over sum of wholes, [N, A] each. -> A intervals."""
        return _intervals(*self._ratios(parts, wholes))

    def differences(self, parts: F64, wholes: F64, baseline: int) -> list[Interval]:
        """Each column's ratio minus that of column `baseline`, paired. -> A intervals."""
        mean, resampled = self._ratios(parts, wholes)
        return _intervals(mean - mean[baseline], resampled - resampled[:, [baseline]])

    def _ratios(self, parts: F64, wholes: F64) -> tuple[F64, F64]:
        """The ratios over all examples [A] and in each resample [B, A]; nan where the whole is 0."""
        sums = np.zeros((2, self._counts.shape[1], parts.shape[1]))  # [2, F, A]
        for values, into in zip((parts, wholes), sums, strict=True):
            np.add.at(into, self._file_of, values)
        with np.errstate(invalid="ignore"):
            part, whole = self._counts @ sums  # [B, A] each
            return np.divide(*sums.sum(axis=1)), part / whole


def mean_intervals(values: npt.ArrayLike, groups: Sequence[tuple[str, str]]) -> list[Interval]:
    """The mean of each column of [N, A], ignoring nan; `groups` are (repository, file) of each example."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers)
    repositories, files = zip(*groups, strict=True)
    return Bootstrap(repositories, files).intervals(np.where(finite, numbers, 0.0), finite.astype(np.float64))


def _intervals(mean: F64, resampled: F64) -> list[Interval]:
    """Means [A] and resamples [B, A] -> percentile intervals, nan for a column without values."""
    return [
        Interval(float(mean[a]), *map(float, np.nanpercentile(resampled[:, a], (2.5, 97.5))))
        if np.isfinite(mean[a])
        else Interval(*[float("nan")] * 3)
        for a in range(len(mean))
    ]

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
_PERCENTILES = (2.5, 97.5)


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
    """How often each file is drawn in each resample."""

    def __init__(self, packages: Sequence[str], files: Sequence[str]) -> None:
        """`packages` and `files` of each example; two packages may have files of one name."""
        names = list(zip(packages, files, strict=True))
        distinct = sorted(set(names))
        index = {name: i for i, name in enumerate(distinct)}
        self._file_of: I64 = np.array([index[name] for name in names], dtype=np.int64)  # [N]
        owners = [package for package, _ in distinct]
        self._counts = _resample_counts(owners, np.random.default_rng(0), RESAMPLES)  # [B, F]

    def intervals(self, parts: F64, wholes: F64) -> list[Interval]:
        """Sum of parts over sum of wholes, [N, A] each. -> A intervals."""
        return _intervals(*self._ratios(parts, wholes))

    def differences(self, parts: F64, wholes: F64, baseline: int) -> list[Interval]:
        """Each column's ratio minus that of column `baseline`, paired. -> A intervals."""
        mean, resampled = self._ratios(parts, wholes)
        return _intervals(mean - mean[baseline], resampled - resampled[:, [baseline]])

    def _ratios(self, parts: F64, wholes: F64) -> tuple[F64, F64]:
        """The ratios over all examples [A] and in each resample [B, A]."""
        part = self._sums_by_file(parts)
        whole = self._sums_by_file(wholes)
        resampled = _divide(self._counts @ part, self._counts @ whole)
        return _divide(part.sum(axis=0), whole.sum(axis=0)), resampled

    def _sums_by_file(self, values: F64) -> F64:
        """[N, A] -> [F, A]."""
        sums = np.zeros((self._counts.shape[1], values.shape[1]))
        np.add.at(sums, self._file_of, values)
        return sums


def _resample_counts(packages: Sequence[str], rng: np.random.Generator, resamples: int) -> F64:
    """How often each file is drawn, given the package of each file [F]. -> [B, F]

    A package drawn c times has its n files drawn c times n times, with equal probability.
    """
    names, members = np.unique(np.array(packages), return_inverse=True)
    times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)  # [B, P]
    counts = np.zeros((resamples, len(packages)))
    for p in range(len(names)):
        files = np.flatnonzero(members == p)
        counts[:, files] = rng.multinomial(times[:, p] * len(files), np.full(len(files), 1 / len(files)))
    return counts


def mean_intervals(values: npt.ArrayLike, groups: Sequence[tuple[str, str]]) -> list[Interval]:
    """The mean of each column of [N, A], ignoring nan; `groups` are (repository, file) of each example."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers)
    repositories, files = zip(*groups, strict=True)
    return Bootstrap(repositories, files).intervals(np.where(finite, numbers, 0.0), finite.astype(np.float64))


def _divide(part: F64, whole: F64) -> F64:
    """part / whole, nan where the denominator is 0."""
    ratio: F64 = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return ratio


def _intervals(mean: F64, resampled: F64) -> list[Interval]:
    """Means [A] and resamples [B, A] -> percentile intervals, nan for a column without values."""
    return [
        Interval(float(mean[a]), *map(float, np.nanpercentile(resampled[:, a], _PERCENTILES)))
        if np.isfinite(mean[a])
        else Interval(*[float("nan")] * 3)
        for a in range(len(mean))
    ]

"""Means with their intervals: places of one file are alike, and files of a repository, so groups are drawn.

Two-level cluster bootstrap: repositories with replacement, then the files of each; 95 % between the percentiles.
With one repository only files are drawn, which says nothing of other repositories.

Legend: N measurements, M measures, F files, B repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

REPETITIONS = 1000
PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean and where it would be in 95 of 100 samples of repositories and files."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def means(values: Floats, groups: Sequence[tuple[str, str]], seed: int = 0) -> list[Mean]:
    """The mean of each column [N, M], nan left out, with its interval; `groups` are (repository, file) [N]."""
    values = np.asarray(values, dtype=np.float64)
    names = sorted(set(groups))
    file_of = np.array([names.index(group) for group in groups])
    there = np.isfinite(values)
    sums, counts = (np.zeros((len(names), values.shape[1])) for _ in range(2))  # [F, M]
    np.add.at(sums, file_of, np.where(there, values, 0.0))
    np.add.at(counts, file_of, there)
    drawn = draw_files([name for name, _ in names], seed)  # [B, F]
    with np.errstate(invalid="ignore", divide="ignore"):
        repeated = (drawn @ sums) / (drawn @ counts)  # [B, M]
        value = sums.sum(axis=0) / counts.sum(axis=0)
    bounds = [bounds_of(column) for column in repeated.T]
    return [Mean(float(v), low, high) for v, (low, high) in zip(value, bounds, strict=True)]


def bounds_of(repeated: Floats) -> tuple[float, float]:
    """The percentiles of what the repetitions gave; nan if no repetition had a value."""
    known = repeated[np.isfinite(repeated)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.percentile(known, PERCENTILES)
    return float(low), float(high)


def draw_files(repositories: Sequence[str], seed: int) -> Floats:
    """How often each file is in each repetition: its repository is drawn first, then it. -> [B, F]."""
    random = np.random.default_rng(seed)
    members = [np.flatnonzero(np.array(repositories) == name) for name in sorted(set(repositories))]
    weights = np.zeros((REPETITIONS, len(repositories)))
    for repetition in weights:
        for chosen in random.integers(len(members), size=len(members)):
            files = members[chosen]
            np.add.at(repetition, random.choice(files, size=len(files)), 1)
    return weights


def mean(values: Sequence[float] | Floats, groups: Sequence[tuple[str, str]], seed: int = 0) -> Mean:
    """The mean of one measure [N]."""
    return means(np.asarray(values, dtype=np.float64)[:, None], groups, seed)[0]

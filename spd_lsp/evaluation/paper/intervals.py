"""Means of measurements with their intervals, as cells of tables.

Places of one file are alike, and files of one repository, so whole groups are drawn (see `bootstrap`). With one
repository only files are drawn, which says nothing of other repositories.

Legend: N measurements, M measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spd_lsp.evaluation.bootstrap import Draws

Floats = npt.NDArray[np.floating[Any]]

REPETITIONS = 1000


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
    there = np.isfinite(values)
    repositories, files = zip(*groups, strict=True)
    draws = Draws(repositories, files, seed, REPETITIONS)
    found = draws.intervals(np.where(there, values, 0.0), there.astype(np.float64))
    return [Mean(one.mean, one.low, one.high) for one in found]


def mean(values: Sequence[float] | Floats, groups: Sequence[tuple[str, str]], seed: int = 0) -> Mean:
    """The mean of one measure [N]."""
    return means(np.asarray(values, dtype=np.float64)[:, None], groups, seed)[0]

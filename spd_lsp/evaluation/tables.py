"""Records of places -> numbers by arm: means with intervals, differences, costs. Prints nothing.

Dimensions: N places, A arms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spd_lsp.evaluation.arms import Arm
from spd_lsp.evaluation.bootstrap import Draws, Interval
from spd_lsp.evaluation.metrics import METRICS
from spd_lsp.evaluation.places import LENGTHS, PRIMARY, STRATA, length_of
from spd_lsp.evaluation.prior import SEEN
from spd_lsp.evaluation.store import Record

__all__ = ["COSTS", "Cost", "Results", "Score", "complete_records", "metric_names"]

Floats = npt.NDArray[np.float64]

TIMES = ("wall_ms", "cpu_ms")
COSTS = ("passes", "rows", "tokens", *TIMES)


@dataclass(frozen=True, slots=True)
class Score:
    """What one arm scored by one metric, and how that differs from the arm it is compared with."""

    arm: str
    metric: str
    value: Interval
    difference: Interval | None  # None for the arm itself, or where there is none to compare with
    against: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one arm took for a completion: means, and for times the 50th and 95th percentile."""

    arm: str
    passes: float
    rows: float
    tokens: float
    wall_p50: float
    wall_p95: float
    cpu_mean: float
    cpu_p50: float


def metric_names(k: int) -> list[str]:
    """The metrics with how many drafts they look at. Example: `EM@1`, `EM@3`"""
    return [f"{name}@{n}" for name in METRICS for n in dict.fromkeys((1, k))]


def complete_records(records: Sequence[Record], arms: Sequence[Arm]) -> list[Record]:
    """Those at which every arm has been asked."""
    return [record for record in records if all(arm.label in record.get("arms", {}) for arm in arms)]


class Results:
    """The records at which every arm was asked, ready to be looked at from any side."""

    def __init__(self, records: Sequence[Record], arms: Sequence[Arm], k: int, against: str) -> None:
        """`against`: the family of arms that the others are compared with, each with the same prior."""
        self.records = complete_records(records, arms)
        self.arms = arms
        self.labels = [arm.label for arm in arms]
        self.k = k
        self.reference = [self.find(f"{against}@{arm.prior}") for arm in arms]  # [A]

    def find(self, label: str) -> int | None:
        """The place of an arm."""
        return self.labels.index(label) if label in self.labels else None

    def scores(self, metric: str, chosen: Sequence[Record] | None = None) -> list[Score]:
        """What each arm scored by a metric such as `EM@3`, over some of the records."""
        records = self.records if chosen is None else chosen
        name, _, k = metric.rpartition("@")
        measure = METRICS[name]

        def pair(record: Record, label: str) -> tuple[float, float]:
            return measure(record["arms"][label]["drafts"], record["place"]["target"], int(k))

        return self.compare(metric, records, pair)

    def keystrokes(self, chosen: Sequence[Record] | None = None) -> list[Score]:
        """KS, 1 - keystrokes / characters, over the places that were typed through with every arm."""
        records = self.typed(self.records if chosen is None else chosen)

        def pair(record: Record, label: str) -> tuple[float, float]:
            one = record["typed"][label]
            return one["characters"] - one["keystrokes"], one["characters"]

        return self.compare("KS", records, pair)

    def typed(self, records: Sequence[Record]) -> list[Record]:
        """The records whose lines were typed through with every arm."""
        return [one for one in records if all(label in one.get("typed", {}) for label in self.labels)]

    def compare(
        self, metric: str, records: Sequence[Record], pair: Callable[[Record, str], tuple[float, float]]
    ) -> list[Score]:
        """Each arm's mean, and its difference from its reference, with intervals."""
        if not records:
            return []
        pairs = np.array([[pair(record, label) for label in self.labels] for record in records])  # [N, A, 2]
        parts, wholes = pairs[..., 0], pairs[..., 1]
        draws = Draws([r["place"]["package"] for r in records], [r["place"]["file"] for r in records])
        values = draws.intervals(parts, wholes)
        rows = {at: draws.differences(parts, wholes, at) for at in {*self.reference} if at is not None}
        return [
            Score(
                label,
                metric,
                values[a],
                rows[at][a] if at is not None and at != a else None,
                self.labels[at] if at is not None and at != a else "",
            )
            for a, (label, at) in enumerate(zip(self.labels, self.reference, strict=True))
        ]

    def costs(self, chosen: Sequence[Record] | None = None) -> list[Cost]:
        """What each arm took."""
        records = self.records if chosen is None else chosen
        return [cost(label, [record["arms"][label] for record in records]) for label in self.labels]

    def slices(self) -> dict[str, list[Record]]:
        """The records from all sides that are reported: primary, by stratum, by length, by whether seen."""
        primary = [record for record in self.records if record["place"]["stratum"] in PRIMARY]
        found = {f"primary: {' + '.join(PRIMARY)}": primary}
        for stratum in STRATA:
            found[f"cursor: {stratum}"] = [r for r in self.records if r["place"]["stratum"] == stratum]
        for length in LENGTHS:
            found[f"length: {length} code tokens"] = [
                r for r in primary if length_of(r["place"]["target"]) == length
            ]
        for seen in SEEN:
            found[f"line: {seen}"] = [r for r in primary if r["seen"] == seen]
        return {name: records for name, records in found.items() if records}


def cost(label: str, replies: Sequence[dict[str, Any]]) -> Cost:
    """Means and percentiles of one arm's costs."""
    of: dict[str, Floats] = {name: np.array([float(reply[name]) for reply in replies]) for name in COSTS}
    means = {name: float(values.mean()) if len(values) else float("nan") for name, values in of.items()}
    at = [float(np.percentile(of["wall_ms"], p)) if len(replies) else float("nan") for p in (50, 95)]
    middle = float(np.median(of["cpu_ms"])) if len(replies) else float("nan")
    return Cost(label, means["passes"], means["rows"], means["tokens"], at[0], at[1], means["cpu_ms"], middle)

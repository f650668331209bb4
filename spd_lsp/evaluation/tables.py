"""Records of places -> numbers by arm: means with intervals, differences, costs. Prints nothing.

Dimensions: N places, A arms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngram_builders.arrays import F64
from spd_lsp.evaluation.arms import Arm
from spd_lsp.evaluation.bootstrap import Draws, Interval
from spd_lsp.evaluation.metrics import METRICS, expected_exact
from spd_lsp.evaluation.places import LENGTHS, PRIMARY, STRATA, length_of
from spd_lsp.evaluation.prior import SEEN
from spd_lsp.evaluation.store import Record

Pairs = Callable[[Record, str], tuple[float, float]]  # of a place and an arm's label: part and whole

_TIMES = ("wall_ms", "cpu_ms")
_COSTS = ("passes", "rows", "tokens", *_TIMES)


@dataclass(frozen=True, slots=True)
class Score:
    """What one arm scored by one metric, and by how much more than the arms it is compared with."""

    arm: str
    metric: str
    value: Interval
    less: Mapping[str, Interval]  # its mean less that of each family it is compared with, at the same prior


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


def _complete_records(records: Sequence[Record], arms: Sequence[Arm]) -> list[Record]:
    """Those at which every arm has been asked."""
    return [record for record in records if all(arm.label in record.get("arms", {}) for arm in arms)]


class Results:
    """The records at which every arm was asked, ready to be looked at from any side."""

    def __init__(
        self, records: Sequence[Record], arms: Sequence[Arm], k: int, against: Sequence[str] = ("greedy",)
    ) -> None:
        """`against`: the families of arms that all are compared with, each at the same prior."""
        self.records = _complete_records(records, arms)
        self.arms = arms
        self.labels = [arm.label for arm in arms]
        self.k = k
        self.against = [family for family in against if any(arm.family == family for arm in arms)]
        self.drawn: dict[tuple[str, ...], Draws] = {}  # by the places they are of

    def scores(self, metric: str, chosen: Sequence[Record] | None = None) -> list[Score]:
        """What each arm scored by a metric such as `EM@3`, over some of the records."""
        records = self.records if chosen is None else chosen
        name, _, k = metric.rpartition("@")
        measure = METRICS[name]

        def pair(record: Record, label: str) -> tuple[float, float]:
            return measure(record["arms"][label]["drafts"], record["place"]["target"], int(k))

        return self.compare(metric, records, self.arms, pair)

    def keystrokes(self, chosen: Sequence[Record] | None = None) -> list[Score]:
        """KS, 1 - keystrokes / characters, of the arms that lines were typed through with, over those lines."""
        records = self.typed(self.records if chosen is None else chosen)

        def pair(record: Record, label: str) -> tuple[float, float]:
            one = record["typed"][label]
            return one["characters"] - one["keystrokes"], one["characters"]

        arms = [arm for arm in self.arms if arm.types]
        return self.compare("KS", records, arms, pair)

    def expected(self, k: int, chosen: Sequence[Record] | None = None) -> list[Score]:
        """EM@k on average of the arms that draw, over the places where more was drawn."""
        records = self.sampled(self.records if chosen is None else chosen)

        def pair(record: Record, label: str) -> tuple[float, float]:
            return expected_exact(record["draws"][label], record["place"]["target"], k)

        return self.compare(f"expected EM@{k}", records, [arm for arm in self.arms if arm.draws], pair)

    def sampled(self, records: Sequence[Record]) -> list[Record]:
        """The records at which more was drawn with every arm that draws."""
        labels = [arm.label for arm in self.arms if arm.draws]
        return [one for one in records if "draws" in one and all(label in one["draws"] for label in labels)]

    def typed(self, records: Sequence[Record]) -> list[Record]:
        """The records whose lines were typed through with every arm that types."""
        labels = [arm.label for arm in self.arms if arm.types]
        return [one for one in records if "typed" in one and all(label in one["typed"] for label in labels)]

    def draws(self, records: Sequence[Record]) -> Draws:
        """How these places are drawn again, the same for all metrics."""
        key = tuple(record["key"] for record in records)
        if key not in self.drawn:
            places = [record["place"] for record in records]
            self.drawn[key] = Draws([one["package"] for one in places], [one["file"] for one in places])
        return self.drawn[key]

    def compare(self, metric: str, records: Sequence[Record], arms: Sequence[Arm], pair: Pairs) -> list[Score]:
        """Each arm's mean and its differences, with intervals."""
        if not records or not arms:
            return []
        pairs = np.array([[pair(record, arm.label) for arm in arms] for record in records])  # [N, A, 2]
        parts, wholes, draws = pairs[..., 0], pairs[..., 1], self.draws(records)
        rows = {a: draws.differences(parts, wholes, a) for a, arm in enumerate(arms) if arm.family in self.against}
        return [
            Score(
                arm.label,
                metric,
                value,
                {arms[at].family: row[a] for at, row in rows.items() if _pairable(arms, a, at)},
            )
            for a, (arm, value) in enumerate(zip(arms, draws.intervals(parts, wholes), strict=True))
        ]

    def costs(self, chosen: Sequence[Record] | None = None) -> list[Cost]:
        """What each arm took."""
        records = self.records if chosen is None else chosen
        return [_cost(label, [record["arms"][label] for record in records]) for label in self.labels]

    def timed_apart(self, chosen: Sequence[Record] | None = None) -> list[str]:
        """Arms whose times were taken in other turns than the first arm's, when more or less else was at work."""
        records = self.records if chosen is None else chosen
        turns = {label: [record["arms"][label].get("turn") for record in records] for label in self.labels}
        return [label for label in self.labels if turns[label] != turns[self.labels[0]]]

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


def _pairable(arms: Sequence[Arm], first: int, second: int) -> bool:
    """Whether two arms differ, but not in what their n-grams know."""
    return first != second and arms[first].prior == arms[second].prior


def _cost(label: str, replies: Sequence[dict[str, Any]]) -> Cost:
    """Means and percentiles of one arm's costs."""
    of: dict[str, F64] = {name: np.array([float(reply[name]) for reply in replies]) for name in _COSTS}
    means = {name: float(values.mean()) if len(values) else float("nan") for name, values in of.items()}
    at = [float(np.percentile(of["wall_ms"], p)) if len(replies) else float("nan") for p in (50, 95)]
    middle = float(np.median(of["cpu_ms"])) if len(replies) else float("nan")
    return Cost(label, means["passes"], means["rows"], means["tokens"], at[0], at[1], means["cpu_ms"], middle)

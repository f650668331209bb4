"""Records of examples -> statistics by arm: means with intervals, paired differences, costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spd_lsp.evaluation.bootstrap import Bootstrap, Interval
from spd_lsp.evaluation.quality.arms import Arm
from spd_lsp.evaluation.quality.examples import PRIMARY, STRATA
from spd_lsp.evaluation.quality.held_out_ngrams import LINE_SEEN
from spd_lsp.evaluation.quality.metrics import METRICS
from spd_lsp.evaluation.quality.store import Record

Measure = Callable[[Record, str], tuple[float, float]]  # of a record and an arm's label: part and whole


@dataclass(frozen=True, slots=True)
class Score:
    """What one arm scores by one metric, and its differences from the arms it is compared with."""

    arm: str
    metric: str
    value: Interval
    less: Mapping[str, Interval]  # by family (its arm with the same prior) or label: the paired difference


@dataclass(frozen=True, slots=True)
class ArmCost:
    """The cost of one arm's completions: means, and for times also percentiles."""

    arm: str
    passes: float
    rows: float
    tokens: float
    wall_p50: float
    wall_p95: float
    cpu_mean: float
    cpu_p50: float


def metric_names(k: int) -> list[str]:
    """The metrics with the number of drafts they look at. Example: `EM@1`, `EM@3`"""
    return [f"{name}@{n}" for name in METRICS for n in dict.fromkeys((1, k))]


class Results:
    """The records that hold every arm, ready for statistics."""

    def __init__(
        self, records: Sequence[Record], arms: Sequence[Arm], k: int, against: Sequence[str] = ("greedy",)
    ) -> None:
        """`against`: what all arms are compared with: families, each at the same prior, or labels of arms."""
        self.records = [one for one in records if all(arm.label in one.get("arms", {}) for arm in arms)]
        self.arms = arms
        self.labels = [arm.label for arm in arms]
        self.k = k
        self.against = [name for name in against if any(name in (arm.family, arm.label) for arm in arms)]
        self._bootstraps: dict[tuple[str, ...], Bootstrap] = {}  # by the examples they resample

    def scores(self, metric: str, records: Sequence[Record] | None = None) -> list[Score]:
        """What each arm scores by a metric such as `EM@3`."""
        name, _, k = metric.rpartition("@")

        def measure(record: Record, label: str) -> tuple[float, float]:
            return METRICS[name](record["arms"][label]["drafts"], record["example"]["target"], int(k))

        return self._compare(metric, self.records if records is None else records, self.arms, measure)

    def keystrokes_saved(self, records: Sequence[Record] | None = None) -> list[Score]:
        """1 - keystrokes / characters of the arms that lines were typed with, over those lines."""

        def measure(record: Record, label: str) -> tuple[float, float]:
            line = record["typed"][label]
            return line["characters"] - line["keystrokes"], line["characters"]

        arms = [arm for arm in self.arms if arm.types_lines]
        return self._compare("KS", self.typed(self.records if records is None else records), arms, measure)

    def requests(self, records: Sequence[Record]) -> Mapping[str, float]:
        """How often each arm that lines were typed with was asked while a line was typed."""
        typed = self.typed(records)
        arms = [arm for arm in self.arms if arm.types_lines]
        return {
            a.label: sum(one["typed"][a.label]["requests"] for one in typed) / len(typed) for a in arms if typed
        }

    def typed(self, records: Sequence[Record]) -> list[Record]:
        """The records whose lines were typed with every arm that types lines."""
        labels = [arm.label for arm in self.arms if arm.types_lines]
        return [one for one in records if "typed" in one and all(label in one["typed"] for label in labels)]

    def _bootstrap(self, records: Sequence[Record]) -> Bootstrap:
        """Resamples of these examples, the same for all metrics."""
        key = tuple(record["key"] for record in records)
        if key not in self._bootstraps:
            examples = [record["example"] for record in records]
            self._bootstraps[key] = Bootstrap([e["package"] for e in examples], [e["file"] for e in examples])
        return self._bootstraps[key]

    def _compare(
        self, metric: str, records: Sequence[Record], arms: Sequence[Arm], measure: Measure
    ) -> list[Score]:
        """Each arm's mean and paired differences."""
        if not records or not arms:
            return []
        pairs = np.array([[measure(record, arm.label) for arm in arms] for record in records])  # [N, A, 2]
        parts = pairs[..., 0]
        wholes = pairs[..., 1]
        bootstrap = self._bootstrap(records)
        less: list[dict[str, Interval]] = [{} for _ in arms]
        for b, other in enumerate(arms):
            for name in {other.family, other.label}.intersection(self.against):
                for a, difference in enumerate(bootstrap.differences(parts, wholes, b)):
                    if a != b and (name == other.label or arms[a].prior == other.prior):
                        less[a][name] = difference
        values = bootstrap.intervals(parts, wholes)
        scores = zip(arms, values, less, strict=True)
        return [Score(arm.label, metric, value, differences) for arm, value, differences in scores]

    def costs(self, records: Sequence[Record]) -> list[ArmCost]:
        """The cost of each arm; there must be records."""
        return [_cost(label, [record["arms"][label] for record in records]) for label in self.labels]

    def slices(self) -> dict[str, list[Record]]:
        """The records by slice: primary, by stratum, by where else the line stands."""
        primary = [record for record in self.records if record["example"]["stratum"] in PRIMARY]
        slices = {f"primary: {' + '.join(PRIMARY)}": primary}
        for stratum in STRATA:
            slices[f"cursor: {stratum}"] = [r for r in self.records if r["example"]["stratum"] == stratum]
        for seen in LINE_SEEN:
            slices[f"line: {seen}"] = [r for r in primary if r["seen"] == seen]
        return {name: records for name, records in slices.items() if records}


def _cost(label: str, results: Sequence[Mapping[str, float]]) -> ArmCost:
    passes, rows, tokens, wall, cpu = (
        np.array([float(result[name]) for result in results])
        for name in ("passes", "rows", "tokens", "wall_ms", "cpu_ms")
    )
    p50, p95 = (float(np.percentile(wall, p)) for p in (50, 95))
    return ArmCost(
        label, float(passes.mean()), float(rows.mean()), float(tokens.mean()), p50, p95,
        float(cpu.mean()), float(np.median(cpu)),
    )  # fmt: skip

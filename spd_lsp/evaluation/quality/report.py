"""The report of `spd-lsp eval quality`: records of examples -> means with intervals, and paired differences.

Scores stand beside the prior and the cost of each arm. A difference is bold only where its
95 % interval excludes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spd_lsp.evaluation.bootstrap import RESAMPLES, Bootstrap, Interval
from spd_lsp.evaluation.quality.arms import Arm
from spd_lsp.evaluation.quality.examples import PRIMARY, STRATA
from spd_lsp.evaluation.quality.held_out_ngrams import LINE_SEEN
from spd_lsp.evaluation.tables import markdown_table, percent, points

Record = dict[str, Any]  # of an example: what every arm wrote, as JSON has it
Measure = Callable[[Record, str], tuple[float, float]]  # of a record and an arm's label: part and whole


@dataclass(frozen=True, slots=True)
class Score:
    """What one arm scores by one metric, and its differences from the arms it is compared with."""

    arm: str
    value: Interval
    less: Mapping[str, Interval]  # by family (its arm with the same prior) or label: the paired difference


class Results:
    """The records of a run, ready for statistics."""

    def __init__(
        self, records: Sequence[Record], arms: Sequence[Arm], k: int, against: Sequence[str] = ("greedy",)
    ) -> None:
        """`against`: what all arms are compared with: families, each at the same prior, or labels of arms."""
        self.records = records
        self.arms = arms
        self.k = k
        self.against = [name for name in against if any(name in (arm.family, arm.label) for arm in arms)]
        self.typing_arms = [arm for arm in arms if arm.types_lines]

    def exact_matches(self, k: int, records: Sequence[Record]) -> list[Score]:
        """How often one of the first k drafts of each arm is the target, character by character."""

        def measure(record: Record, label: str) -> tuple[float, float]:
            return float(record["example"]["target"] in record["arms"][label]["drafts"][:k]), 1.0

        return self._compare(records, self.arms, measure)

    def keystrokes_saved(self, records: Sequence[Record]) -> list[Score]:
        """1 - keystrokes / characters of the arms that lines were typed with, over those lines."""

        def measure(record: Record, label: str) -> tuple[float, float]:
            line = record["typed"][label]
            return line["characters"] - line["keystrokes"], line["characters"]

        return self._compare(_typed_lines(records), self.typing_arms, measure)

    def _compare(self, records: Sequence[Record], arms: Sequence[Arm], measure: Measure) -> list[Score]:
        """Each arm's mean and paired differences."""
        if not records or not arms:
            return []
        pairs = np.array([[measure(record, arm.label) for arm in arms] for record in records])  # [N, A, 2]
        parts = pairs[..., 0]
        wholes = pairs[..., 1]
        examples = [record["example"] for record in records]
        bootstrap = Bootstrap([one["package"] for one in examples], [one["file"] for one in examples])
        less: list[dict[str, Interval]] = [{} for _ in arms]
        for b, other in enumerate(arms):
            for name in {other.family, other.label}.intersection(self.against):
                for a, difference in enumerate(bootstrap.differences(parts, wholes, b)):
                    if a != b and (name == other.label or arms[a].prior == other.prior):
                        less[a][name] = difference
        values = bootstrap.intervals(parts, wholes)
        return [Score(arm.label, value, given) for arm, value, given in zip(arms, values, less, strict=True)]

    def slices(self) -> dict[str, Sequence[Record]]:
        """The records by slice: primary, by stratum, by where else the line stands."""
        primary = [record for record in self.records if record["example"]["stratum"] in PRIMARY]
        slices = {f"primary: {' + '.join(PRIMARY)}": primary}
        for stratum in STRATA:
            slices[f"cursor: {stratum}"] = [r for r in self.records if r["example"]["stratum"] == stratum]
        for seen in LINE_SEEN:
            slices[f"line: {seen}"] = [r for r in primary if r["seen"] == seen]
        return {name: records for name, records in slices.items() if records}


_METHOD = """\
Method: prompt, context, n-grams, stop rule and ranking are the product's; a completion ends with its line or after
{max_tokens} tokens. The prompt of an example is read once, untimed; the arms follow in a random order. Times are
processor times of decoding, n-gram look-ups and ranking of one completion. EM: exact match. KS: keystrokes saved
when lines are typed (a character, accepting, and a step down the list cost 1 each), with so many requests a line.
In parentheses: 95 % bootstrap confidence intervals, {resamples} resamples of packages and of files within them.
Differences are paired; bold ones have an interval that excludes zero.
Samplers draw once at each example."""


def quality_report(results: Results, facts: Mapping[str, Any]) -> str:
    """All tables as Markdown, below what it takes to reproduce them."""
    method = _METHOD.format(max_tokens=facts["max_tokens"], resamples=f"{RESAMPLES:,}")
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    parts = [f"# Decoders compared on {len(results.records):,} examples", listed, method]
    for number, (name, records) in enumerate(results.slices().items()):
        parts.append(f"## {name} ({len(records):,} examples)")
        tables = _primary_tables(results, records) if number == 0 else [_slice_table(results, records)]
        parts.extend(tables)
    return "\n\n".join(parts)


def _scores(results: Results, records: Sequence[Record]) -> dict[str, list[Score]]:
    return {f"EM@{k}": results.exact_matches(k, records) for k in (1, results.k)}


def _primary_tables(results: Results, records: Sequence[Record]) -> Iterator[str]:
    """The examples by which arms are compared: scores and costs, then the paired differences."""
    scores = _scores(results, records)
    saved = {score.arm: score for score in results.keystrokes_saved(records)}
    typed = _typed_lines(records)

    rows = [["arm", *scores, "KS", "requests", "passes", "rows", "CPU ms"]]
    for a, arm in enumerate(results.arms):
        cells = [percent(column[a].value) for column in scores.values()]
        typing = ["", ""]
        if arm.label in saved:
            requests = np.mean([record["typed"][arm.label]["requests"] for record in typed])
            typing = [percent(saved[arm.label].value), f"{requests:.1f}"]
        costs = [
            f"{np.mean([record['arms'][arm.label][cost] for record in records]):.{digits}f}"
            for cost, digits in (("passes", 1), ("rows", 1), ("cpu_ms", 0))
        ]
        rows.append([arm.label, *cells, *typing, *costs])
    yield markdown_table(rows)
    if typed:
        yield f"KS is over {len(typed):,} of these examples."

    for family in results.against:
        yield f"### Difference from {family}{'' if '@' in family else ' with the same n-grams'}, paired"
        rows = [["arm", *scores, "KS"]]
        for a, arm in enumerate(results.arms):
            if family in scores["EM@1"][a].less:
                cells = [points(column[a].less[family]) for column in scores.values()]
                rows.append(
                    [arm.label, *cells, points(saved[arm.label].less.get(family) if arm.label in saved else None)]
                )
        yield markdown_table(rows)


def _typed_lines(records: Sequence[Record]) -> list[Record]:
    """The records whose lines were also typed."""
    return [record for record in records if record["typed"]]


def _slice_table(results: Results, records: Sequence[Record]) -> str:
    """The scores of each arm on a slice of the examples."""
    scores = _scores(results, records)
    most = f"EM@{results.k}"
    rows = [["arm", *scores, *(f"{most} less {family}" for family in results.against)]]
    for a, arm in enumerate(results.arms):
        cells = [percent(column[a].value) for column in scores.values()]
        rows.append([arm.label, *cells, *(points(scores[most][a].less.get(name)) for name in results.against)])
    return markdown_table(rows)

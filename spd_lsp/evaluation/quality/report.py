"""The report of `spd-lsp eval quality`: records of examples -> means with intervals, and paired differences."""

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

Record = dict[str, Any]  # an example with the results of every arm, from JSON
_Measure = Callable[[Record, str], tuple[float, float]]  # of a record and an arm's label: part and whole

_METHOD = """\
Method: prompt, context, n-grams, stop rule and ranking are the product's; a completion ends with its line or after
{max_tokens} tokens. The prompt of an example is read once, untimed; the arms follow in a random order. Times are
processor times of decoding, n-gram look-ups and ranking of one completion. EM: exact match. KS: keystrokes saved
when lines are typed (a character, accepting, and a step down the list cost 1 each), with so many requests a line.
In parentheses: 95 % bootstrap confidence intervals, {resamples} resamples of packages and of files within them.
Differences are paired; bold ones have an interval that excludes zero.
Samplers draw once at each example."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one arm by one metric."""

    value: Interval
    less: Mapping[str, Interval]  # by family: the paired difference from that family's arm with the same prior


@dataclass(frozen=True, slots=True)
class Results:
    """The records of a run, ready for statistics."""

    records: Sequence[Record]
    arms: Sequence[Arm]
    k: int
    against: Sequence[str] = ("greedy",)  # families to compare all arms with

    def exact_matches(self, k: int, records: Sequence[Record]) -> dict[str, Score]:
        """How often one of the first k drafts of each arm is the target, character by character; by label."""

        def measure(record: Record, label: str) -> tuple[float, float]:
            return float(record["example"]["target"] in record["arms"][label]["drafts"][:k]), 1.0

        return self._compare(records, self.arms, measure)

    def keystrokes_saved(self, records: Sequence[Record]) -> dict[str, Score]:
        """1 - keystrokes / characters of the arms that lines were typed with, over those lines."""

        def measure(record: Record, label: str) -> tuple[float, float]:
            line = record["typed"][label]
            return line["characters"] - line["keystrokes"], line["characters"]

        typed = [record for record in records if record["typed"]]
        return self._compare(typed, [arm for arm in self.arms if arm.types_lines], measure)

    def _compare(self, records: Sequence[Record], arms: Sequence[Arm], measure: _Measure) -> dict[str, Score]:
        if not records or not arms:
            return {}
        pairs = np.array([[measure(record, arm.label) for arm in arms] for record in records])  # [N, A, 2]
        parts, wholes = pairs[..., 0], pairs[..., 1]
        examples = [record["example"] for record in records]
        bootstrap = Bootstrap([one["package"] for one in examples], [one["file"] for one in examples])
        less: dict[str, dict[str, Interval]] = {arm.label: {} for arm in arms}
        for b, other in enumerate(arms):
            if other.family in self.against:
                for arm, difference in zip(arms, bootstrap.differences(parts, wholes, b), strict=True):
                    if arm is not other and arm.prior == other.prior:
                        less[arm.label][other.family] = difference
        values = bootstrap.intervals(parts, wholes)
        return {arm.label: Score(value, less[arm.label]) for arm, value in zip(arms, values, strict=True)}


def quality_report(results: Results, facts: Mapping[str, Any]) -> str:
    """Return how to reproduce the run, and all tables as Markdown."""
    method = _METHOD.format(max_tokens=facts["max_tokens"], resamples=f"{RESAMPLES:,}")
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    parts = [f"# Decoders compared on {len(results.records):,} examples", listed, method]

    primary = [record for record in results.records if record["example"]["stratum"] in PRIMARY]
    title = f"primary: {' + '.join(PRIMARY)}"
    slices = {title: primary}
    for stratum in STRATA:
        slices[f"cursor: {stratum}"] = [r for r in results.records if r["example"]["stratum"] == stratum]
    for seen in LINE_SEEN:
        slices[f"line: {seen}"] = [r for r in primary if r["seen"] == seen]
    for name, records in slices.items():
        if records:
            parts.append(f"## {name} ({len(records):,} examples)")
            scores = {f"EM@{k}": results.exact_matches(k, records) for k in (1, results.k)}
            parts.extend(_tables(results, records, scores, is_primary=name == title))
    return "\n\n".join(parts)


def _tables(
    results: Results, records: Sequence[Record], scores: Mapping[str, Mapping[str, Score]], *, is_primary: bool
) -> Iterator[str]:
    """Return the scores of each arm; for the primary examples also costs and paired differences."""
    labels = [arm.label for arm in results.arms]
    shown = {label: [percent(column[label].value) for column in scores.values()] for label in labels}
    if not is_primary:
        yield markdown_table([["arm", *scores], *([label, *shown[label]] for label in labels)])
        return
    saved = results.keystrokes_saved(records)
    typed = [record["typed"] for record in records if record["typed"]]
    rows = [["arm", *scores, "KS", "requests", "passes", "rows", "CPU ms"]]
    for label in labels:
        typing = ["", ""]
        if label in saved:
            requests = np.mean([lines[label]["requests"] for lines in typed])
            typing = [percent(saved[label].value), f"{requests:.1f}"]
        costs = [
            f"{np.mean([record['arms'][label][cost] for record in records]):.{digits}f}"
            for cost, digits in (("passes", 1), ("rows", 1), ("cpu_ms", 0))
        ]
        rows.append([label, *shown[label], *typing, *costs])
    yield markdown_table(rows)
    if typed:
        yield f"KS is over {len(typed):,} of these examples."

    columns = [*scores.values(), saved]
    for family in results.against:
        less = {label: [column[label].less.get(family) if label in column else None for column in columns]
                for label in labels}  # fmt: skip
        if rows := [[label, *map(points, found)] for label, found in less.items() if found[0]]:
            yield f"### Difference from {family} with the same n-grams, paired"
            yield markdown_table([["arm", *scores, "KS"], *rows])

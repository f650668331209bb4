"""The report of `spd-lsp eval infilling`: how many programs are right, and what their drafts cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ngram_builders.arrays import F64
from spd_lsp.evaluation.bootstrap import RESAMPLES, Bootstrap
from spd_lsp.evaluation.quality.store import Record
from spd_lsp.evaluation.report_writer import Cell, Report, ReportTable, percent, points

_METHOD = """\
Method: one draft at a time is written into the gap, and the program is run with its tests. pass@{k}: one of the
first {k} drafts passes. The solution: the first draft is the line of the benchmark's authors. The prompt is the
product's, with the whole program, and read once, untimed; passes count it as one. Times are those of decoding and
ranking. In parentheses: 95 % bootstrap confidence intervals, {resamples} resamples of HumanEval's problems.
Differences are paired; bold ones have an interval that excludes zero."""
_COSTS = {"passes": "passes", "rows": "rows", "tokens": "tokens", "CPU ms": "cpu_ms"}
_BASELINES = ("greedy", "beam")

_Measure = Callable[[Mapping[str, Any]], float]  # of what one arm wrote at one task


def infilling_report(records: Sequence[Record], labels: Sequence[str], k: int, facts: Mapping[str, Any]) -> Report:
    """Compare arms at the tasks that all of them were asked; there must be some."""
    shared = [record for record in records if all(label in record["arms"] for label in labels)]
    problems = [record["problem"] for record in shared]
    facts = {**facts, "tasks": len(shared), "problems": len(set(problems)), **_prompts(shared)}
    bootstrap = Bootstrap(problems, problems)
    measures = {f"pass@{n}": _passes_at(n) for n in dict.fromkeys((1, k))} | {"the solution": _is_exact}
    columns = {name: _column(shared, labels, measure) for name, measure in measures.items()}
    tables = [_scores(shared, labels, columns, bootstrap)]
    baselines = [label for label in labels if _name(label) in _BASELINES]
    tables += [_differences(baseline, labels, columns, bootstrap) for baseline in baselines]
    method = _METHOD.format(k=k, resamples=f"{RESAMPLES:,}")
    return Report("infilling", "HumanEval-Infilling", facts, [method, *tables], {"records": shared})


def _prompts(records: Sequence[Record]) -> dict[str, Any]:
    """What was read before any draft, in the mean."""
    means = [float(np.mean([record[name] for record in records])) for name in ("prompt_tokens", "prompt_cpu_ms")]
    trimmed = sum(bool(record["omitted"]) for record in records)
    return {
        "prompt": f"{means[0]:.0f} tokens, {means[1]:.0f} CPU ms after the task before",
        "trimmed prompts": trimmed,
    }


def _passes_at(n: int) -> _Measure:
    """1 where one of the first n drafts passes its tests."""
    return lambda written: 1.0 if 0 < written["solved_by"] <= n else 0.0


def _is_exact(written: Mapping[str, Any]) -> float:
    return float(written["exact"])


def _column(records: Sequence[Record], labels: Sequence[str], measure: _Measure) -> F64:
    """A measure of each task and arm [N, A]."""
    return np.array([[measure(record["arms"][label]) for label in labels] for record in records])


def _scores(
    records: Sequence[Record], labels: Sequence[str], columns: Mapping[str, F64], bootstrap: Bootstrap
) -> ReportTable:
    """A row an arm: its measures and its costs, in the mean."""
    values = [bootstrap.intervals(hits, np.ones_like(hits)) for hits in columns.values()]
    costs = [_column(records, labels, itemgetter(name)) for name in _COSTS.values()]
    rows: list[list[Cell]] = [
        [_name(label), *(percent(value[a]) for value in values), *(float(cost[:, a].mean()) for cost in costs)]
        for a, label in enumerate(labels)
    ]
    return ReportTable("", ["decoder", *(f"{name}, %" for name in columns), *_COSTS], rows, digits=1)


def _differences(
    baseline: str, labels: Sequence[str], columns: Mapping[str, F64], bootstrap: Bootstrap
) -> ReportTable:
    """A row an arm: its measures less those of one of them, paired."""
    b = labels.index(baseline)
    found = [bootstrap.differences(hits, np.ones_like(hits), b) for hits in columns.values()]
    rows = [
        [_name(label), *(points(difference[a]) for difference in found)]
        for a, label in enumerate(labels)
        if a != b
    ]
    return ReportTable(f"Less {_name(baseline)}, in points:", ["decoder", *columns], rows)


def _name(label: str) -> str:
    return label.partition("@")[0]

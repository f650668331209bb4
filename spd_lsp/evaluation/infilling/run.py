"""Fill each gap with every arm and run the programs: tasks go in, records and their report come out.

The prompt is the product's for a request by hand, with so much context that nothing of these short programs is
left out, in the model's own format and without n-grams: there is no repository. It is read once, untimed; then
every arm finds it in the cache.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from spd_lsp.evaluation.bootstrap import RESAMPLES, mean_intervals
from spd_lsp.evaluation.infilling.sandbox import passes
from spd_lsp.evaluation.infilling.tasks import Task
from spd_lsp.evaluation.quality.arms import Arm, ArmRunner
from spd_lsp.evaluation.quality.report import Record
from spd_lsp.evaluation.tables import markdown_table, percent

WHOLE_PROGRAM = 4096  # tokens of context; the longest program has some 700
_METHOD = """\
Method: one draft at a time is written into the gap, and the program is run with its tests. pass@{k}: one of the
first {k} drafts passes. The solution: the first draft is the line of the benchmark's authors. The prompt is the
product's, with the whole program, and read once, untimed; passes count it as one. Times are those of decoding and
ranking. In parentheses: 95 % bootstrap confidence intervals, {resamples} resamples of HumanEval's problems."""


def fill_gap(runner: ArmRunner, task: Task, arms: Sequence[Arm]) -> Record:
    """What each arm writes, in an order drawn for this task, and which of its drafts is first to pass."""
    request = runner.request(task.source, len(task.before), "python")
    runner.model.prefill(request.prompt.ids)
    verdicts: dict[str, bool] = {}  # a program is run once
    results = {}
    for arm in random.Random(task.name).sample(list(arms), len(arms)):
        written = runner.complete(arm, request, None)
        solved_by = 0  # the place, from 1, of the first draft that passes the tests
        for place, draft in enumerate(written.drafts, 1):
            if draft not in verdicts:
                verdicts[draft] = passes(task.program(draft))
            if verdicts[draft]:
                solved_by = place
                break
        exact = written.drafts[:1] == [task.solution]
        results[arm.label] = {**written.record(), "solved_by": solved_by, "exact": exact}
    return {"problem": task.problem, "arms": results}


def infilling_report(records: Sequence[Record], arms: Sequence[Arm], k: int) -> str:
    """Compare arms: how many programs are right, and what their drafts cost."""
    groups = [(record["problem"], record["problem"]) for record in records]
    tries = sorted({1, k})
    rows = [["decoder", *(f"pass@{n}, %" for n in tries), "the solution, %", "passes", "rows", "CPU ms"]]
    for arm in arms:
        written = [record["arms"][arm.label] for record in records]
        hits = [[*(0 < one["solved_by"] <= n for n in tries), one["exact"]] for one in written]  # [N, measures]
        costs = [np.mean([one[cost] for one in written]) for cost in ("passes", "rows", "cpu_ms")]
        scores = map(percent, mean_intervals(hits, groups))
        rows.append([arm.family, *scores, *(f"{cost:.1f}" for cost in costs)])
    method = _METHOD.format(k=k, resamples=f"{RESAMPLES:,}")
    return "\n\n".join([f"# HumanEval-Infilling, {len(records):,} tasks", method, markdown_table(rows)])

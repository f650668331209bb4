"""Fill each gap with every arm and run the programs: tasks go in, records and their report come out.

The cursor stands on an empty line where the missing lines were. The prompt is the product's for a request by hand,
with so much context that nothing of these short programs is left out, in the model's own format and without
n-grams: there is no repository. It is read once, untimed; then every arm finds it in the cache.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np

from ngram_builders.arrays import F64
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.evaluation.bootstrap import RESAMPLES, Bootstrap
from spd_lsp.evaluation.infilling.sandbox import passes
from spd_lsp.evaluation.infilling.tasks import Task
from spd_lsp.evaluation.quality.arm_runner import ArmRequest, ArmRunner
from spd_lsp.evaluation.quality.arms import Arm
from spd_lsp.evaluation.quality.report import Record
from spd_lsp.evaluation.tables import markdown_table, percent, points

WHOLE_PROGRAM = 4096  # tokens of context; the longest program has some 700
_METHOD = """\
Method: one draft at a time is written into the gap, and the program is run with its tests. pass@{k}: one of the
first {k} drafts passes. The solution: the first draft is the line of the benchmark's authors. The prompt is the
product's, with the whole program, and read once, untimed; passes count it as one. Times are those of decoding and
ranking. In parentheses: 95 % bootstrap confidence intervals, {resamples} resamples of HumanEval's problems.
Differences are paired; bold ones have an interval that excludes zero."""
_BASELINES = ("greedy@none", "beam@none")


def fill_gap(runner: ArmRunner, task: Task, arms: Sequence[Arm]) -> Record:
    """What each arm writes, in an order drawn for this task, and which of its drafts is first to pass."""
    request = infilling_request(runner, task)
    runner.warm_up(request)
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


def infilling_request(runner: ArmRunner, task: Task) -> ArmRequest:
    """The request of a cursor in the gap. Several lines end where the model ends the text, or its tokens do."""
    request = runner.request(task.source, len(task.before), "python")
    if task.is_line:
        return request
    context = dataclasses.replace(request.texts.context, shape="block", indent="")
    return dataclasses.replace(request, texts=DraftText(runner.tokens, request.prompt, context))


def infilling_report(records: Sequence[Record], arms: Sequence[Arm], k: int) -> str:
    """Compare arms: how many programs are right, and what their drafts cost."""
    problems = [record["problem"] for record in records]
    bootstrap = Bootstrap(problems, problems)
    written = [[record["arms"][arm.label] for arm in arms] for record in records]  # [N, A]
    measures: dict[str, F64] = {
        f"pass@{n}": np.array([[0 < one["solved_by"] <= n for one in row] for row in written], float)
        for n in dict.fromkeys((1, k))
    }
    measures["the solution"] = np.array([[one["exact"] for one in row] for row in written], float)

    names = [arm.label.partition("@")[0] for arm in arms]
    scores = [bootstrap.intervals(hits, np.ones_like(hits)) for hits in measures.values()]
    rows = [["decoder", *(f"{name}, %" for name in measures), "passes", "rows", "CPU ms"]]
    for a, name in enumerate(names):
        costs = [np.mean([row[a][cost] for row in written]) for cost in ("passes", "rows", "cpu_ms")]
        rows.append([name, *(percent(score[a]) for score in scores), *(f"{cost:.1f}" for cost in costs)])
    method = _METHOD.format(k=k, resamples=f"{RESAMPLES:,}")
    parts = [f"# HumanEval-Infilling, {len(records):,} tasks", method, markdown_table(rows)]

    for b, baseline in enumerate(arms):
        if baseline.label in _BASELINES:
            found = [bootstrap.differences(hits, np.ones_like(hits), b) for hits in measures.values()]
            rows = [["decoder", *measures]]
            rows += [[name, *(points(one[a]) for one in found)] for a, name in enumerate(names) if a != b]
            parts += [f"Less {names[b]}, in points:", markdown_table(rows)]
    return "\n\n".join(parts)

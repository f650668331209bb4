"""Fill the gaps of HumanEval-Infilling with every arm and run the programs.

Bavarian et al., "Efficient Training of Language Models to Fill in the Middle", 2022. In: the benchmark's file of
single lines, which is no part of this project. Out: records and their report.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bootstrap import RESAMPLES, mean_intervals
from spd_lsp.evaluation.infilling.sandbox import passes
from spd_lsp.evaluation.quality.arms import Arm, ArmRunner
from spd_lsp.evaluation.quality.report import Record
from spd_lsp.evaluation.tables import markdown_table, percent

_FIELDS = ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test")
WHOLE_PROGRAM = 4096  # tokens of context; the longest program has some 700
_METHOD = """\
Method: one draft at a time is written into the gap, and the program is run with its tests. pass@{k}: one of the
first {k} drafts passes. The solution: the first draft is the line of the benchmark's authors. The prompt is the
product's, with the whole program, and read once, untimed; passes count it as one. Times are those of decoding and
ranking. In parentheses: 95 % bootstrap confidence intervals, {resamples} resamples of HumanEval's problems."""


@dataclass(frozen=True, slots=True)
class Task:
    """A gap in a program. The cursor stands on an empty line of its own."""

    name: str  # such as SingleLineInfilling/HumanEval/0/L1
    function: str  # that the tests call
    before: str  # ends with a line break
    below: str  # begins with a line
    solution: str  # of the benchmark's authors, without white space at its end
    tests: str

    @property
    def problem(self) -> str:
        """The HumanEval problem that it is a line of, such as HumanEval/0."""
        return self.name.partition("/")[2].rpartition("/")[0]

    @property
    def source(self) -> str:
        """The document in which the cursor stands, behind `before`."""
        return f"{self.before}\n{self.below}"

    def program(self, draft: str) -> str:
        """The filled program and its tests."""
        return f"{self.before}{draft}\n{self.below}\n{self.tests}\ncheck({self.function})\n"


def read_tasks(path: Path) -> list[Task]:
    """Read the benchmark's file of single lines; raise UserError for any other."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        tasks = [Task(*(str(row[name]) for name in _FIELDS)) for row in rows]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a file of HumanEval-Infilling ({error!r}); give its .jsonl.gz") from error
    if not tasks or not all(
        one.name.startswith("SingleLine") and one.before.endswith("\n") and one.solution.endswith("\n")
        for one in tasks
    ):
        raise UserError(f"{path} has no gaps of single lines; give HumanEval-SingleLineInfilling.jsonl.gz")
    return [replace(task, solution=task.solution.rstrip()) for task in tasks]


def fill_gap(runner: ArmRunner, task: Task, arms: Sequence[Arm]) -> Record:
    """Fill the gap with each arm, in an order drawn for this task, and find the first draft that passes."""
    request = runner.request(task.source, len(task.before), "python")
    runner.model.prefill(request.prompt.ids)
    verdicts: dict[str, bool] = {}  # a program is run once
    results = {}
    for arm in random.Random(task.name).sample(list(arms), len(arms)):
        written = runner.complete(arm, request, None)
        solved_by = 0  # rank, from 1, of the first draft that passes the tests
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
    """Return a comparison of arms: the share of programs that pass, and the cost of their drafts."""
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

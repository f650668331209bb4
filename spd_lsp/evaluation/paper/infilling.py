"""pass@k on functions with a hole: HumanEval-infilling (Bavarian et al., 2022), run against its tests.

The file is JSONL, gzipped or not, with `prompt`, `suffix`, `canonical_solution`, `test` and `entry_point`. A line
is completed as in an editor: the cursor on an empty line, the code below it known. Where several lines are
missing, a block is completed, which ends at a line indented less than both neighbours; where a part of a line is,
the cursor stands in it. A program runs in the sandbox only if it is valid Python, and once, however many arms
wrote it.

pass@k counts a task that one of the first k drafts solves, in the order in which they would be shown.
"""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bootstrap import mean_intervals
from spd_lsp.evaluation.paper.passages import sample_in_order
from spd_lsp.evaluation.quality.arm_runner import ArmRunner
from spd_lsp.evaluation.quality.arms import Arm
from spd_lsp.evaluation.report_writer import Cell, Panel, Report, Table
from spd_lsp.ngrams.interpolation import Mixture

_FIELDS = ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test")


@dataclass(frozen=True, slots=True)
class InfillingTask:
    """A function with a hole."""

    task_id: str
    entry_point: str
    prompt: str
    suffix: str
    canonical_solution: str
    test: str

    @property
    def problem(self) -> str:
        """The function it is made from: `SingleLineInfilling/HumanEval/0/L1` -> `HumanEval/0`."""
        return "/".join(self.task_id.split("/")[1:3]) or self.task_id

    @property
    def _break_after(self) -> str:
        """The end of the missing text: a line break if whole lines are missing."""
        return "\n" if self.canonical_solution.endswith("\n") else ""

    @property
    def block(self) -> str | None:
        """The indentation of the missing block, or None if at most a line is missing.

        An editor does not know what is missing, so it is the lesser indentation of the lines around the hole.
        """
        if "\n" not in self.canonical_solution.rstrip("\n"):
            return None
        around = (_first_filled(self.prompt.splitlines()[::-1]), _first_filled(self.suffix.splitlines()))
        return min((line[: len(line) - len(line.lstrip())] for line in around), key=len)

    @property
    def source(self) -> tuple[str, int]:
        """The file in the editor, with an empty line in place of missing ones, and the cursor in the hole."""
        return f"{self.prompt}{self._break_after}{self.suffix}", len(self.prompt)

    def program(self, text: str) -> str:
        """The function with its hole filled, its tests, and their call."""
        return f"{self.prompt}{text}{self._break_after}{self.suffix}\n{self.test}\ncheck({self.entry_point})\n"


def _first_filled(lines: Sequence[str]) -> str:
    """The first line that is not blank, or an empty one."""
    return next((line for line in lines if line.strip()), "")


def read_tasks(path: Path, limit: int | None = None, seed: int = 0) -> list[InfillingTask]:
    """The tasks of a file, or a random sample of them in their order."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        tasks = [_parse_task(json.loads(line), path) for line in text.splitlines() if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"cannot read JSON lines from {path}: {error}; name a file of infilling tasks") from error
    if not tasks:
        raise UserError(f"{path} holds no tasks; name a file of infilling tasks")
    return sample_in_order(tasks, limit, seed)


def _parse_task(row: Mapping[str, Any], path: Path) -> InfillingTask:
    missing = [name for name in _FIELDS if not isinstance(row.get(name), str)]
    if missing:
        raise UserError(f"a line of {path} has no {', '.join(missing)}; name a file of infilling tasks")
    return InfillingTask(**{name: row[name] for name in _FIELDS})


@dataclass(slots=True)
class TaskSolver:
    """Completes tasks with arms and runs the programs."""

    runner: ArmRunner
    mixtures: Mapping[str, Mixture | None]  # by prior
    passes_tests: Callable[[str], bool]  # runs a program
    runs: int = 0
    _outcomes: dict[str, bool] = field(default_factory=dict)  # of the programs of one task

    def solve(self, task: InfillingTask, arms: Sequence[Arm], k: int) -> dict[str, list[float]]:
        """For each arm: solved at 1, at k, the missing text itself at 1, at k, and passes."""
        request = self.runner.request(*task.source, "python", task.block)
        truth = task.canonical_solution.strip()
        self._outcomes.clear()
        results = {}
        for arm in arms:
            completed = self.runner.complete(arm, request, self.mixtures[arm.prior])
            drafts = completed.drafts[:k]
            solved = [self._solves(task, draft) for draft in drafts]
            same = [draft.strip() == truth for draft in drafts]
            outcomes = (any(solved[:1]), any(solved), any(same[:1]), any(same))
            results[arm.label] = [*map(float, outcomes), float(completed.passes)]
        return results

    def _solves(self, task: InfillingTask, draft: str) -> bool:
        """Whether the function passes its tests with this draft."""
        program = task.program(draft)
        if program not in self._outcomes:
            valid = is_python(program)
            self.runs += valid
            self._outcomes[program] = valid and self.passes_tests(program)
        return self._outcomes[program]


def is_python(program: str) -> bool:
    """Whether a text compiles; nothing of it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(program, "<program>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def summarise(
    solved: Sequence[Mapping[str, Sequence[float]]],
    tasks: Iterable[InfillingTask],
    facts: Mapping[str, Any],
    guards: Mapping[str, bool],
    k: int,
) -> Report:
    """pass@1 and pass@k by arm, in percent; lines of one problem are one cluster."""
    groups = [("all", task.problem) for task in tasks]
    scale = np.array([100, 100, 100, 100, 1])
    values = {name: mean_intervals(scale * np.array([one[name] for one in solved]), groups) for name in solved[0]}
    rows: list[list[Cell]] = [[name, *intervals[:4], intervals[4].mean] for name, intervals in values.items()]
    heads = ["arm", "pass@1", f"pass@{k}", "exact match@1", f"exact match@{k}", "passes"]
    table = Table("Tasks solved by the first draft and by one of k, in percent.", heads, rows, digits=1)
    unguarded = [what for what, possible in guards.items() if possible]
    facts = {**facts, "a program in the sandbox could": " and ".join(unguarded) or "nothing that was tried"}
    series = {name: [(arm, intervals[at]) for arm, intervals in values.items()]
              for at, name in enumerate(dict.fromkeys(("pass@1", f"pass@{k}")))}  # fmt: skip
    panel = Panel("tasks solved, % (95 %)", "", series, horizontal=True)
    return Report("infilling", "Infilling: pass@k", facts, [table], {"arms": values, "guards": guards}, [panel])

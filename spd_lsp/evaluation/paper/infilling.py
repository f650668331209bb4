"""pass@k on functions with a hole: HumanEval-infilling (Bavarian et al., 2022), run against its tests.

Comes in: a JSONL file, packed or not, with `prompt`, `suffix`, `canonical_solution`, `test` and `entry_point`. A
line is asked for as an editor would: the cursor in an empty line, the code below it known. Where several lines are
missing, a block is asked for, which lines indented less than both neighbours end; where a part of a line is, the
cursor stands in it. A program is run in the sandbox only if it is Python at all, and once, however many arms
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
from spd_lsp.evaluation.arms import Arm, Asker
from spd_lsp.evaluation.bootstrap import Interval, means
from spd_lsp.evaluation.paper.passages import some_of
from spd_lsp.evaluation.report_writer import Cell, Report, Table, error_bars
from spd_lsp.ngrams.interpolation import Mixture

_FIELDS = ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test")

Run = Callable[[str], bool]  # whether a program reaches its end


@dataclass(frozen=True, slots=True)
class Task:
    """A function with a hole."""

    task_id: str
    entry_point: str
    prompt: str
    suffix: str
    canonical_solution: str
    test: str

    @property
    def problem(self) -> str:
        """The function that it is a line of: `SingleLineInfilling/HumanEval/0/L1` -> `HumanEval/0`."""
        return "/".join(self.task_id.split("/")[1:3]) or self.task_id

    @property
    def break_after(self) -> str:
        """What ends the missing text: a line break, if whole lines are missing."""
        return "\n" if self.canonical_solution.endswith("\n") else ""

    @property
    def block(self) -> str | None:
        """The indentation of the missing block, or None if no more than a line is missing.

        An editor does not know what is missing, so it is the lesser indentation of the lines around the hole.
        """
        if "\n" not in self.canonical_solution.rstrip("\n"):
            return None
        around = (_first_filled(self.prompt.splitlines()[::-1]), _first_filled(self.suffix.splitlines()))
        return min((line[: len(line) - len(line.lstrip())] for line in around), key=len)

    @property
    def source(self) -> tuple[str, int]:
        """The file as an editor holds it, an empty line in place of missing ones, and the cursor in the hole."""
        return f"{self.prompt}{self.break_after}{self.suffix}", len(self.prompt)

    def program(self, text: str) -> str:
        """What is run: the function with its hole filled, its tests, and the call of them."""
        return f"{self.prompt}{text}{self.break_after}{self.suffix}\n{self.test}\ncheck({self.entry_point})\n"


def _first_filled(lines: Sequence[str]) -> str:
    """The first line with text in it, or an empty one."""
    return next((line for line in lines if line.strip()), "")


def read_tasks(path: Path, limit: int | None = None, seed: int = 0) -> list[Task]:
    """The tasks of a file, or so many drawn at random, in their order."""
    try:
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
        tasks = [_read_task(json.loads(line), path) for line in text.splitlines() if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise UserError(
            f"expected JSON lines in {path}, found: {error}; name a file of infilling tasks"
        ) from error
    if not tasks:
        raise UserError(f"expected tasks in {path}, found none; name a file of infilling tasks")
    return some_of(tasks, limit, seed)


def _read_task(found: Mapping[str, Any], path: Path) -> Task:
    """One line of the file."""
    missing = [name for name in _FIELDS if not isinstance(found.get(name), str)]
    if missing:
        raise UserError(f"expected {', '.join(_FIELDS)} in each line of {path}, found no {', '.join(missing)}")
    return Task(**{name: found[name] for name in _FIELDS})


@dataclass(slots=True)
class Solver:
    """Asks arms for lines and runs what they write."""

    asker: Asker
    mixtures: Mapping[str, Mixture | None]  # prior -> what n-grams know
    run: Run
    runs: int = 0  # of the sandbox
    known: dict[str, bool] = field(default_factory=dict)

    def solve(self, task: Task, arms: Sequence[Arm], k: int) -> dict[str, list[float]]:
        """For each arm: solved at 1, at k, the missing text itself at 1, at k, and passes."""
        question = self.asker.question(*task.source, "python", task.block)
        truth = task.canonical_solution.strip()
        self.known.clear()
        found = {}
        for arm in arms:
            reply = self.asker.ask(arm, question, self.mixtures[arm.prior])
            lines = reply.drafts[:k]
            solved = [self.solves(task, line) for line in lines]
            same = [line.strip() == truth for line in lines]
            found[arm.label] = [
                *map(float, (any(solved[:1]), any(solved), any(same[:1]), any(same))),
                float(reply.passes),
            ]
        return found

    def solves(self, task: Task, line: str) -> bool:
        """Whether the function passes its tests with this line."""
        program = task.program(line)
        if program not in self.known:
            self.known[program] = is_python(program) and self.attempt(program)
        return self.known[program]

    def attempt(self, program: str) -> bool:
        """Run it."""
        self.runs += 1
        return self.run(program)


def is_python(program: str) -> bool:
    """Whether a text can be compiled; nothing of it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(program, "<program>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def summarise(
    solved: Sequence[Mapping[str, Sequence[float]]],
    tasks: Iterable[Task],
    facts: Mapping[str, Any],
    guards: Mapping[str, bool],
    k: int,
) -> Report:
    """pass@1 and pass@k by arm, in percent; lines of one problem are drawn together for the intervals."""
    groups = [("all", task.problem) for task in tasks]
    scale = np.array([100, 100, 100, 100, 1])
    found = {name: means(scale * np.array([one[name] for one in solved]), groups) for name in solved[0]}
    rows: list[list[Cell]] = [[name, *values[:4], values[4].mean] for name, values in found.items()]
    heads = ["arm", "pass@1", f"pass@{k}", "same text@1", f"same text@{k}", "passes"]
    caption = (
        "Tasks solved by the first draft and by one of k, and with the very text that was missing, in percent."
    )
    unguarded = [what for what, could in guards.items() if could]
    told = {**facts, "a program in the sandbox could": " and ".join(unguarded) or "nothing that was tried"}
    table = Table(caption, heads, rows, digits=1)
    data = {"arms": found, "guards": guards}
    return Report(
        "infilling", "Infilling: pass@k", told, [table], data, lambda figure: draw(figure, found, k), (8.0, 4.2)
    )


def draw(figure: Any, found: Mapping[str, Sequence[Interval]], k: int) -> None:
    """pass@1 and pass@k of each arm."""
    axes = figure.subplots()
    names = list(found)[::-1]
    for at, (label, shift) in enumerate((("pass@1", 0.12), (f"pass@{k}", -0.12))):
        values = [found[name][at] for name in names]
        errors = error_bars(values)
        places = np.arange(len(names)) + shift
        axes.errorbar([one.mean for one in values], places, xerr=errors, fmt="o", markersize=4, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="tasks solved, % (95 %)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8)

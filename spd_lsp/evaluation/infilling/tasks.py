"""The single-line tasks of HumanEval-Infilling: programs with a gap of a line, and tests for what fills it.

Bavarian et al., "Efficient Training of Language Models to Fill in the Middle", 2022. In: the benchmark's file,
which is no part of this project. Out: tasks, and the programs that drafts make of them.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path

from ngram_builders.errors import UserError

_FIELDS = ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test")


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

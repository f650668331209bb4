"""A task is a program with a gap: filled with the solution it passes, filled with something else it does not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.infilling.run import read_tasks
from spd_lsp.evaluation.infilling.sandbox import passes

ROW = {
    "task_id": "SingleLineInfilling/HumanEval/7/L1",
    "entry_point": "largest",
    "prompt": 'def largest(numbers):\n    """Return the largest number."""\n    best = numbers[0]\n',
    "suffix": "        if number > best:\n            best = number\n    return best\n",
    "canonical_solution": "    for number in numbers:\n",
    "test": "def check(candidate):\n    assert candidate([1, 3, 2]) == 3\n    assert candidate([2]) == 2\n",
}


def write(path: Path, *rows: object) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_the_filled_program_passes_its_tests_and_no_other_does(tmp_path: Path):
    [task] = read_tasks(write(tmp_path / "tasks.jsonl.gz", ROW))
    assert (
        task.source.replace("\n\n", f"\n{task.solution}\n", 1)
        == ROW["prompt"] + "    for number in numbers:\n" + ROW["suffix"]
    )
    assert passes(task.program(task.solution))
    assert not passes(task.program("    for number in numbers[:1]:"))
    assert not passes(task.program(""))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "no gaps of single lines"),
        ([{"task_id": "1"}], "not a file of HumanEval-Infilling"),
        (["text"], "not a file of HumanEval-Infilling"),
        ([ROW | {"prompt": "def f():\n    ret"}], "no gaps of single lines"),
        ([ROW | {"prompt": None}], "no gaps of single lines"),
        ([ROW | {"task_id": "MultiLineInfilling/HumanEval/7/L1_L2"}], "no gaps of single lines"),
    ],
)
def test_another_file_is_refused_with_a_reason(tmp_path: Path, rows: list[object], reason: str):
    with pytest.raises(UserError, match=reason):
        read_tasks(write(tmp_path / "tasks.jsonl.gz", *rows))

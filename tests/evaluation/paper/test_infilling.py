"""Functions with a hole: reading, asking, running, reporting."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import Tokens
from spd_lsp.evaluation.arms import Asker, parse_arms
from spd_lsp.evaluation.paper.infilling import Solver, Task, is_python, read_tasks, summarise
from spd_lsp.evaluation.paper.sandbox import run
from spd_lsp.models.load import load
from spd_lsp.settings import Settings

STARTER = Path(__file__).parents[3] / "spd_lsp" / "starter"
ROW = {
    "task_id": "SingleLineInfilling/Made/7/L1",
    "entry_point": "total",
    "prompt": "def total(prices):\n    result = 0\n    for price in prices:\n        result += price\n",
    "suffix": "",
    "canonical_solution": "    return result\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n",
}


@pytest.fixture
def task() -> Task:
    return Task(**ROW)


@pytest.fixture(scope="module")
def asker() -> Asker:
    return Asker(load(STARTER, "cpu"), Tokens(STARTER), Settings(drafts=3))


def test_files_are_read_packed_or_not(tmp_path: Path, task: Task) -> None:
    plain, packed = tmp_path / "tasks.jsonl", tmp_path / "tasks.jsonl.gz"
    plain.write_text(json.dumps(ROW) + "\n\n")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_tasks(plain) == read_tasks(packed) == [task]
    assert task.problem == "Made/7"


def test_a_sample_keeps_the_order(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(ROW | {"task_id": f"S/Made/{n:02}/L0"}) + "\n" for n in range(20)))
    drawn = [task.task_id for task in read_tasks(path, 5, seed=1)]
    assert drawn == sorted(drawn)
    assert len(set(drawn)) == 5
    assert drawn == [task.task_id for task in read_tasks(path, 5, seed=1)]


@pytest.mark.parametrize(
    ("content", "found"),
    [("", "found none"), ("{", "expected JSON lines"), ('{"prompt": "x"}', "found no task_id")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, found: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=found):
        read_tasks(path)


def test_a_hole_of_several_lines_asks_for_a_block_and_one_within_a_line_for_its_rest() -> None:
    lines = ROW | {"canonical_solution": "    result = 0\n    for price in prices:\n        result += price\n",
                   "prompt": "def total(prices):\n", "suffix": "\n    return result\n"}  # fmt: skip
    block = Task(**lines)
    assert block.block == ""  # the lesser indentation of `def total` and `return result`
    assert block.source[0].startswith("def total(prices):\n\n\n    return")
    part = Task(
        **(ROW | {"canonical_solution": "result", "prompt": ROW["prompt"] + "    return ", "suffix": "\n"})
    )
    assert (part.block, Task(**ROW).block) == (None, None)
    for task in (block, part, Task(**ROW)):
        assert run(task.program(task.canonical_solution.rstrip("\n"))).passed
    assert not run(part.program("0")).passed


def test_a_block_is_answered_with_lines(asker: Asker) -> None:
    question = asker.question("def f(a):\n\n    return a\n", 10, "python", "    ")
    assert (question.place.shape, question.place.indent) == ("block", "    ")


def test_the_missing_line_solves_its_task(task: Task) -> None:
    assert run(task.program(task.canonical_solution.rstrip("\n"))).passed
    assert not run(task.program("    return 0")).passed


def test_the_cursor_stands_in_an_empty_line() -> None:
    task = Task(**ROW | {"suffix": "    print(result)\n"})
    source, cursor = task.source
    assert source[cursor:] == "\n    print(result)\n"
    assert source[:cursor].endswith("\n")


def test_what_is_no_python_is_never_run(asker: Asker, task: Task) -> None:
    def never(program: str) -> bool:
        raise AssertionError("it was run")

    assert not is_python("def (")
    assert not Solver(asker, {}, never).solves(task, "    return (")


def test_a_program_runs_once_however_many_wrote_it(asker: Asker, task: Task) -> None:
    programs: list[str] = []

    def record(program: str) -> bool:
        programs.append(program)
        return program.count("return result") == 1

    arms = parse_arms(["greedy", "superposed", "beam"], ["none"])
    solver = Solver(asker, {"none": None}, record)
    found = solver.solve(task, arms, 3)
    assert len(programs) == len(set(programs)) == solver.runs
    assert [len(values) for values in found.values()] == [5, 5, 5]
    for first, among, same_first, same_among, passes in found.values():
        assert first <= among
        assert same_first <= same_among
        assert passes >= 1


def test_the_report_tells_what_the_sandbox_leaves_open(task: Task) -> None:
    solved = [{"greedy@none": [1.0, 1.0, 0.0, 0.0, 5.0]}, {"greedy@none": [0.0, 1.0, 0.0, 0.0, 7.0]}]
    report = summarise(solved, [task, task], {"model": "starter"}, {"reach the network": True}, 3)
    assert "could: reach the network" in report.markdown()
    assert "| greedy@none | 50.0 (50.0 to 50.0) | 100.0" in report.markdown()

"""Functions with a hole: reading, asking, running, reporting."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper.infilling import InfillingTask, TaskSolver, is_python, read_tasks, summarise
from spd_lsp.evaluation.paper.sandbox import run_sandboxed
from spd_lsp.evaluation.quality.arm_runner import ArmRunner
from spd_lsp.evaluation.quality.arms import parse_arms
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
def task() -> InfillingTask:
    return InfillingTask(**ROW)


@pytest.fixture(scope="module")
def runner() -> ArmRunner:
    return ArmRunner(load(STARTER, "cpu"), ModelTokenizer(STARTER), Settings(drafts=3))


def test_files_are_read_packed_or_not(tmp_path: Path, task: InfillingTask) -> None:
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
    [("", "holds no tasks"), ("{", "cannot read JSON lines"), ('{"prompt": "x"}', "has no task_id")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, found: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=found):
        read_tasks(path)


def test_a_hole_of_several_lines_asks_for_a_block_and_one_within_a_line_for_its_rest() -> None:
    lines = ROW | {"canonical_solution": "    result = 0\n    for price in prices:\n        result += price\n",
                   "prompt": "def total(prices):\n", "suffix": "\n    return result\n"}  # fmt: skip
    block = InfillingTask(**lines)
    assert block.block == ""  # the lesser indentation of `def total` and `return result`
    assert block.source[0].startswith("def total(prices):\n\n\n    return")
    part = InfillingTask(
        **(ROW | {"canonical_solution": "result", "prompt": ROW["prompt"] + "    return ", "suffix": "\n"})
    )
    assert (part.block, InfillingTask(**ROW).block) == (None, None)
    for task in (block, part, InfillingTask(**ROW)):
        assert run_sandboxed(task.program(task.canonical_solution.rstrip("\n"))).passed
    assert not run_sandboxed(part.program("0")).passed


def test_a_block_is_answered_with_lines(runner: ArmRunner) -> None:
    request = runner.request("def f(a):\n\n    return a\n", 10, "python", "    ")
    assert (request.texts.context.shape, request.texts.context.indent) == ("block", "    ")


def test_the_missing_line_solves_its_task(task: InfillingTask) -> None:
    assert run_sandboxed(task.program(task.canonical_solution.rstrip("\n"))).passed
    assert not run_sandboxed(task.program("    return 0")).passed


def test_the_cursor_stands_in_an_empty_line() -> None:
    task = InfillingTask(**ROW | {"suffix": "    print(result)\n"})
    source, cursor = task.source
    assert source[cursor:] == "\n    print(result)\n"
    assert source[:cursor].endswith("\n")


def test_what_is_no_python_is_never_run(runner: ArmRunner, task: InfillingTask) -> None:
    def never(program: str) -> bool:
        raise AssertionError("it was run")

    assert not is_python("def (")
    assert not TaskSolver(runner, {}, never)._solves(task, "    return (")


def test_a_program_runs_once_however_many_wrote_it(runner: ArmRunner, task: InfillingTask) -> None:
    programs: list[str] = []

    def record(program: str) -> bool:
        programs.append(program)
        return program.count("return result") == 1

    arms = parse_arms(["greedy", "superposed", "beam"], ["none"])
    solver = TaskSolver(runner, {"none": None}, record)
    found = solver.solve(task, arms, 3)
    assert len(programs) == len(set(programs)) == solver.runs
    assert [len(values) for values in found.values()] == [5, 5, 5]
    for first, among, same_first, same_among, passes in found.values():
        assert first <= among
        assert same_first <= same_among
        assert passes >= 1


def test_the_report_tells_what_the_sandbox_leaves_open(task: InfillingTask) -> None:
    solved = [{"greedy@none": [1.0, 1.0, 0.0, 0.0, 5.0]}, {"greedy@none": [0.0, 1.0, 0.0, 0.0, 7.0]}]
    report = summarise(solved, [task, task], {"model": "starter"}, {"reach the network": True}, 3)
    assert "could: reach the network" in report.markdown()
    assert "| greedy@none | 50.0 (50.0 to 50.0) | 100.0" in report.markdown()

"""The command: nothing runs unless a person allows it, drafts are run as programs, a stopped run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spd_lsp.cli import main
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.infilling import run as infilling
from spd_lsp.evaluation.infilling.report import infilling_report
from spd_lsp.evaluation.infilling.tasks import read_tasks
from spd_lsp.evaluation.quality.arm_runner import ArmRunner
from spd_lsp.evaluation.quality.store import read_results
from spd_lsp.models.load import load
from spd_lsp.settings import Settings
from tests.conftest import STARTER
from tests.evaluation.infilling.test_tasks import ROW, write

LARGEST = {
    "task_id": "SingleLineInfilling/HumanEval/8/L1",
    "entry_point": "largest",
    "prompt": "def largest(a, b):\n    if a > b:\n",
    "suffix": "    return b\n",
    "canonical_solution": "        return a\n",
    "test": "def check(candidate):\n    assert candidate(2, 1) == 2\n    assert candidate(1, 2) == 2\n",
}
IMPOSSIBLE = LARGEST | {
    "task_id": "SingleLineInfilling/HumanEval/9/L1",
    "test": "def check(candidate):\n    assert candidate(2, 1) == 3\n",
}


@pytest.fixture
def benchmark_file(tmp_path: Path) -> Path:
    """Two tasks: the drafts of the first pass the tests, those of the second do not."""
    return write(tmp_path / "tasks.jsonl.gz", LARGEST, IMPOSSIBLE)


def evaluate(file: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["eval", "infilling", str(file), "--out", str(file.parent / "out"), *options])


def test_no_program_runs_unless_a_person_allows_it(benchmark_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(infilling, "passes", lambda program: pytest.fail("ran a program"))
    result = evaluate(benchmark_file)
    assert result.exit_code == 1 and "add --run-code" in result.output
    assert not (benchmark_file.parent / "out").exists()


def test_drafts_of_the_starter_are_run_and_counted(benchmark_file: Path):
    result = evaluate(benchmark_file, "--run-code", "--arms", "uncopied,greedy")
    assert result.exit_code == 0, result.output
    records = {record["key"]: record["arms"] for record in read_results(benchmark_file.parent / "out")}
    right, wrong = (records[row["task_id"]]["uncopied@none"] for row in (LARGEST, IMPOSSIBLE))
    assert (right["drafts"][0], right["solved_by"], right["exact"]) == ("        return a", 1, True)
    assert (wrong["drafts"], wrong["solved_by"], wrong["exact"]) == (right["drafts"], 0, True)
    assert "| uncopied | 50.0 (0.0 to 100.0) | " in result.output and "- tasks: 2\n" in result.output


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_stopped(benchmark_file: Path, monkeypatch: pytest.MonkeyPatch):
    run, seen = infilling.passes, []

    def interrupted(program: str) -> bool:
        seen.append(program)
        if len(seen) == 2:  # in the second task
            raise KeyboardInterrupt
        return run(program)

    monkeypatch.setattr(infilling, "passes", interrupted)
    options = ("--run-code", "--arms", "uncopied")
    assert evaluate(benchmark_file, *options).exit_code == 130
    stored = read_results(benchmark_file.parent / "out")
    assert [record["key"] for record in stored] == [LARGEST["task_id"]]
    assert evaluate(benchmark_file, *options).exit_code == 0
    finished = read_results(benchmark_file.parent / "out")
    assert len(finished) == 2 and finished[0] == stored[0]
    ran = len(seen)
    assert evaluate(benchmark_file, *options).exit_code == 0 and len(seen) == ran


def test_the_model_reads_the_whole_program_and_not_the_gap(tmp_path: Path):
    tokens = ModelTokenizer(STARTER)
    runner = ArmRunner(load(STARTER, "cpu", lambda text: None), tokens, Settings())
    for task in read_tasks(write(tmp_path / "tasks.jsonl.gz", ROW, LARGEST)):
        request = infilling.infilling_request(runner, task)
        read = tokens.bytes_of(request.prompt.ids).decode()
        before = tokens.bytes_of(request.prompt.history).decode() + request.prompt.spelling.healed.decode()
        assert before == task.before and request.texts.context.after == "\n" + task.below
        assert task.solution not in read and request.texts.context.omitted == 0


def record(problem: str, key: str, **solved_by: int) -> dict[str, object]:
    costs = {"passes": 4, "rows": 3, "tokens": 4, "cpu_ms": 9.0}
    arms = {
        f"{name}@none": {"solved_by": place, "exact": place == 1, **costs} for name, place in solved_by.items()
    }
    return {"key": key, "problem": problem, "prompt_tokens": 7, "prompt_cpu_ms": 1.0, "omitted": 0, "arms": arms}


def test_a_task_is_solved_by_one_of_the_first_drafts():
    records = [
        record("1", "a", uncopied=1, greedy=1),
        record("1", "b", uncopied=3, greedy=0),
        record("2", "c", uncopied=2, greedy=1),
        record("2", "d", uncopied=0, greedy=0),
        record("3", "e", uncopied=1),  # greedy was not asked
    ]
    report = infilling_report(records, ["uncopied@none", "greedy@none"], 3, {})
    scores, less = (part for part in report.parts if not isinstance(part, str))
    assert [row[:4] for row in scores.rows] == [
        ["uncopied", "25.0 (0.0 to 50.0)", "75.0 (50.0 to 100.0)", "25.0 (0.0 to 50.0)"],
        ["greedy", "50.0 (50.0 to 50.0)", "50.0 (50.0 to 50.0)", "50.0 (50.0 to 50.0)"],
    ]
    assert [row[:2] for row in less.rows] == [["uncopied", "-25.0 (-50.0 to +0.0)"]]
    assert report.facts["tasks"] == 4 and report.facts["problems"] == 2
    assert json.loads(report.json())["data"]["records"][0]["key"] == "a"

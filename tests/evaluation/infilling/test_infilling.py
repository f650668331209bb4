"""The command: nothing runs unless a person allows it, and drafts are run as programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spd_lsp.cli import main
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.infilling import run as infilling
from spd_lsp.evaluation.infilling.run import read_tasks
from spd_lsp.evaluation.quality.arms import ArmRunner
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
    return CliRunner().invoke(main, ["eval", "infilling", str(file), *options])


def test_no_program_runs_unless_a_person_allows_it(benchmark_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(infilling, "passes", lambda program: pytest.fail("ran a program"))
    result = evaluate(benchmark_file)
    assert result.exit_code == 1 and "add --run-code" in result.output


def test_drafts_of_the_starter_are_run_and_counted(benchmark_file: Path):
    result = evaluate(benchmark_file, "--run-code", "--arms", "uncopied,greedy")
    assert result.exit_code == 0, result.output
    assert "| uncopied | 50.0 (0.0 to 100.0) | 50.0 (0.0 to 100.0) | 100.0 (100.0 to 100.0) |" in result.output


def test_the_model_reads_the_whole_program_and_not_the_gap(tmp_path: Path):
    tokens = ModelTokenizer(STARTER)
    runner = ArmRunner(load(STARTER, "cpu", lambda text: None), tokens, Settings())
    for task in read_tasks(write(tmp_path / "tasks.jsonl.gz", ROW, LARGEST)):
        request = runner.request(task.source, len(task.before), "python")
        read = tokens.bytes_of(request.prompt.ids).decode()
        before = tokens.bytes_of(request.prompt.history).decode() + request.prompt.spelling.healed.decode()
        assert before == task.before and request.texts.context.after == "\n" + task.below
        assert task.solution not in read

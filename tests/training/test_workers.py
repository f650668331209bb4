"""Two processes learn what one would, stop together and save once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from ngram_builders.errors import UserError
from spd_lsp.training import checkpoint, workers
from spd_lsp.training.train import create_model, create_optimisers, train
from tests.training.test_train import PLAN, ROWS, after

# argv: folder of the run, and after how many steps process 1 asks for the end.
PROGRAM = """
import sys
from pathlib import Path
import torch
from spd_lsp.training import workers
from spd_lsp.training.train import train
from tests.training.conftest import LENGTH, VOCABULARY
from tests.training.test_train import PLAN, ROWS
from spd_lsp.training.train import ModelShape, starter_config

torch.set_num_threads(1)
workers.join()
config = starter_config(VOCABULARY, LENGTH, ModelShape(width=16, inner=24, layers=4, heads=4))
last = int(sys.argv[2])
reports = []
train(config, ROWS, PLAN, Path(sys.argv[1]), lambda progress, loss: reports.append(loss),
      stop=lambda progress: workers.rank() == 1 and progress.step == last)
if workers.rank() == 0:
    print(len(reports), reports[0])
"""


def run_two(folder: Path, last: int) -> tuple[int, float]:
    """Train in two processes; return the number of steps and the first loss."""
    program = folder.with_suffix(".py")
    program.write_text(PROGRAM)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, str(program), str(folder), str(last)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    steps, loss = done.stdout.split()
    return int(steps), float(loss)


def test_two_processes_learn_what_one_learns_and_resume(config: LlamaConfig, tmp_path: Path) -> None:
    losses: list[float] = []
    one = train(config, ROWS, PLAN, tmp_path / "one", lambda progress, loss: losses.append(loss))
    steps, loss = run_two(tmp_path / "two", last=2)
    assert steps == 2
    assert loss == pytest.approx(losses[0], rel=1e-5)
    assert run_two(tmp_path / "two", last=99)[0] == 4
    two = create_model(config, seed=9)
    progress = checkpoint.load(tmp_path / "two", two, create_optimisers(two, PLAN))
    assert (progress["step"], progress["tokens"]) == (6, 6 * 2 * 48)
    for name, parameter in one.named_parameters():
        assert torch.allclose(parameter, two.get_parameter(name), atol=1e-4), name


def test_alone_a_process_has_all_rows_and_waits_for_nobody() -> None:
    tensor = torch.ones(2)
    workers.join()
    workers.sum_over_processes([tensor])
    with workers.first_alone():
        workers.wait()
    assert (workers.rank(), workers.count(), tensor.tolist()) == (0, 1, [1, 1])
    assert [workers.any_process(said) for said in (False, True)] == [False, True]


def test_more_processes_than_rows_a_step_are_refused(
    config: LlamaConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "count", lambda: 3)
    with pytest.raises(UserError, match="3 processes share 2 rows a step; start at most 2"):
        train(config, ROWS, PLAN, tmp_path, stop=after(1))

"""A run can be stopped anywhere, learns, and ends its budget with a rate of zero."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from spd_lsp.training import checkpoint
from spd_lsp.training.train import (
    Progress,
    TrainingPlan,
    batch,
    create_optimiser,
    rate_factor,
    token_weights,
    train,
)
from tests.training.base_files import random_llama

ROWS = np.random.default_rng(0).integers(0, 320, size=(5, 48)).astype(np.uint16)
PLAN = TrainingPlan(tokens=6 * 2 * 48, rows_a_step=2, warm_up=96, decay=400)


def after(steps: int) -> Callable[[Progress], bool]:
    """Stop after so many more steps."""
    left = iter(range(steps))
    next(left)
    return lambda progress: next(left, None) is None


def fresh(seed: int = 0) -> LlamaForCausalLM:
    return random_llama(320, spread=0.02, seed=seed)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """Passes are in low precision; weights and state are kept in full."""
    whole = train(fresh(), ROWS, PLAN, tmp_path / "whole")
    for _ in range(3):
        parts = train(fresh(), ROWS, PLAN, tmp_path / "parts", stop=after(2))
    for name, parameter in whole.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, parts.get_parameter(name)), name


def test_a_finished_run_is_unchanged(tmp_path: Path) -> None:
    train(fresh(), ROWS, PLAN, tmp_path)
    steps: list[int] = []
    train(fresh(), ROWS, PLAN, tmp_path, lambda progress, loss: steps.append(progress.step))
    assert steps == []


def test_the_loss_falls_on_rows_seen_often(tmp_path: Path) -> None:
    losses: list[float] = []
    plan = TrainingPlan(tokens=60 * 2 * 48, warm_up=96, decay=4000, rate=3e-3)
    train(fresh(), ROWS[:2], plan, tmp_path, lambda progress, loss: losses.append(loss))
    assert losses[0] == pytest.approx(np.log(320), abs=0.2)
    assert losses[-1] < losses[0] - 1


def test_a_checkpoint_restores_weights_optimisers_and_progress(tmp_path: Path) -> None:
    model = train(fresh(), ROWS, PLAN, tmp_path, stop=after(2))
    other = fresh(seed=9)
    optimiser = create_optimiser(other, PLAN)
    progress = checkpoint.load(tmp_path, other, optimiser)
    assert (progress["step"], progress["tokens"]) == (2, 2 * 2 * 48)
    assert all(torch.equal(p, other.get_parameter(name)) for name, p in model.named_parameters())
    assert len(optimiser.state_dict()["state"]) == len([*model.parameters()])
    assert {path.name for path in tmp_path.iterdir()} == {checkpoint.FULL_FILE, checkpoint.WEIGHTS_FILE}


@pytest.mark.parametrize(
    ("tokens", "factor"), [(0, 0.01), (49, 0.5), (99, 1.0), (700, 1.0), (800, 1.0), (900, 0.5), (1000, 0.0)]
)
def test_the_rate_warms_up_stays_constant_and_falls_to_zero(tokens: int, factor: float) -> None:
    plan = TrainingPlan(tokens=1000, warm_up=100, decay=200)
    assert rate_factor(Progress(tokens=tokens), plan) == pytest.approx(factor)


def test_a_run_without_optimiser_state_warms_up_again() -> None:
    plan = TrainingPlan(tokens=10**9, warm_up=100)
    steps = [Progress(tokens=10**6, step=step, resumed=50) for step in (50, 59, 69, 100)]
    assert [rate_factor(progress, plan) for progress in steps] == pytest.approx([0.05, 0.5, 1.0, 1.0])


def test_a_run_can_be_resumed_from_weights_alone(tmp_path: Path) -> None:
    """What another machine is sent: a fifth of the bytes, the same place in the rows."""
    there = train(fresh(), ROWS, PLAN, tmp_path, stop=after(2))
    exact = tmp_path / checkpoint.FULL_FILE
    assert (tmp_path / checkpoint.WEIGHTS_FILE).stat().st_size < exact.stat().st_size / 2
    exact.unlink()
    other = fresh(seed=9)
    progress = checkpoint.load(tmp_path, other, create_optimiser(other, PLAN))
    assert (progress["step"], progress["resumed"]) == (2, 2)
    for name, parameter in there.named_parameters():
        assert torch.allclose(parameter, other.get_parameter(name), rtol=5e-3, atol=1e-6), name
    seen: list[int] = []
    train(fresh(), ROWS, PLAN, tmp_path, lambda progress, loss: seen.append(progress.step))
    assert seen == [3, 4, 5, 6]


def test_a_pause_of_a_run_changes_nothing(tmp_path: Path) -> None:
    """Its schedule counts tokens, and what it notes of time is the processor's."""
    began = time.process_time()
    seen: list[float] = []

    def report(progress: Progress, loss: float) -> None:
        time.sleep(0.1)
        seen.append(progress.seconds)

    train(fresh(), ROWS, PLAN, tmp_path, report)
    assert seen[-1] <= time.process_time() - began


def test_rows_come_in_order_and_start_over() -> None:
    assert torch.equal(batch(ROWS, 0, 2), torch.from_numpy(ROWS[:2].astype(np.int64)))
    assert torch.equal(batch(ROWS, 2, 2)[1], torch.from_numpy(ROWS[0].astype(np.int64)))


def test_only_the_ends_of_gaps_have_more_weight() -> None:
    """A plain end, then a gap: suffix, prefix, text, end; then an end that closes nothing."""
    ids = torch.tensor([[9, 0, 1, 8, 2, 8, 9, 0, 9, 0], [8, 9, 2, 0, 1, 2, 0, 0, 9, 9]])
    wanted = torch.ones(2, 10)
    wanted[0, 7] = wanted[1, 3] = wanted[1, 6] = 4.0
    assert torch.equal(token_weights(ids, 4.0), wanted)

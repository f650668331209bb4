"""A run can be stopped anywhere, learns, and ends its budget with a rate of zero."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from spd_lsp.training import checkpoint
from spd_lsp.training.train import (
    Progress,
    TrainingPlan,
    batch,
    create_model,
    create_optimisers,
    rate,
    token_weights,
    train,
)

ROWS = np.random.default_rng(0).integers(0, 320, size=(5, 48)).astype(np.uint16)
PLAN = TrainingPlan(tokens=6 * 2 * 48, rows_a_step=2, warm_up=96, decay=400, low="float32")


def after(steps: int) -> Callable[[Progress], bool]:
    """Stop after so many more steps."""
    left = iter(range(steps))
    next(left)
    return lambda progress: next(left, None) is None


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(config: LlamaConfig, tmp_path: Path) -> None:
    whole = train(config, ROWS, PLAN, tmp_path / "whole")
    for _ in range(3):
        parts = train(config, ROWS, PLAN, tmp_path / "parts", stop=after(2))
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, parts.get_parameter(name)), name


@pytest.mark.parametrize("low", ["float32", "bfloat16"])
def test_a_trained_models_run_can_be_resumed_too(config: LlamaConfig, tmp_path: Path, low: str) -> None:
    """Passes in low precision, AdamW for everything: weights and state are kept in full."""
    plan = replace(PLAN, optimiser="adamw", matrix_rate=3e-4, low=low)
    whole = train(config, ROWS, plan, tmp_path / "whole")
    for _ in range(3):
        parts = train(config, ROWS, plan, tmp_path / "parts", stop=after(2))
    for name, parameter in whole.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, parts.get_parameter(name)), name


def test_a_finished_run_is_unchanged(config: LlamaConfig, tmp_path: Path) -> None:
    train(config, ROWS, PLAN, tmp_path)
    steps: list[int] = []
    train(config, ROWS, PLAN, tmp_path, lambda progress, loss: steps.append(progress.step))
    assert steps == []


def test_another_seed_gives_other_weights(config: LlamaConfig) -> None:
    first, again, other = (create_model(config, seed).model.embed_tokens.weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_loss_falls_on_rows_seen_often(config: LlamaConfig, tmp_path: Path) -> None:
    losses: list[float] = []
    plan = TrainingPlan(
        tokens=60 * 2 * 48, rows_a_step=2, warm_up=96, decay=4000, embedding_rate=0.02, low="float32"
    )
    train(config, ROWS[:2], plan, tmp_path, lambda progress, loss: losses.append(loss))
    assert losses[0] == pytest.approx(np.log(320), abs=0.2)
    assert losses[-1] < losses[0] - 1


def test_a_checkpoint_restores_weights_optimisers_and_progress(config: LlamaConfig, tmp_path: Path) -> None:
    model = train(config, ROWS, PLAN, tmp_path, stop=after(2))
    fresh = create_model(config, seed=9)
    optimisers = create_optimisers(fresh, PLAN)
    progress = checkpoint.load(tmp_path, fresh, optimisers)
    assert (progress["step"], progress["tokens"]) == (2, 2 * 2 * 48)
    assert all(torch.equal(p, fresh.get_parameter(name)) for name, p in model.named_parameters())
    assert all(optimiser.state_dict()["state"] for optimiser in optimisers.values())
    assert {path.name for path in tmp_path.iterdir()} == {checkpoint.FULL_FILE, checkpoint.WEIGHTS_FILE}


def test_matrices_go_to_muon_and_the_rest_to_adamw_each_once(config: LlamaConfig) -> None:
    model = create_model(config, 0)
    given = [
        id(p) for o in create_optimisers(model, PLAN).values() for group in o.param_groups for p in group["params"]
    ]
    assert sorted(given) == sorted(id(parameter) for parameter in model.parameters())


def test_adamw_alone_learns_everything_at_one_rate(config: LlamaConfig) -> None:
    model = create_model(config, 0)
    (adamw,) = create_optimisers(model, replace(PLAN, optimiser="adamw", matrix_rate=3e-4)).values()
    assert len(adamw.param_groups) == 1
    assert adamw.param_groups[0]["lr"] == 3e-4
    assert len(adamw.param_groups[0]["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("tokens", "factor"), [(0, 0.01), (49, 0.5), (99, 1.0), (700, 1.0), (800, 1.0), (900, 0.5), (1000, 0.0)]
)
def test_the_rate_warms_up_stays_constant_and_falls_to_zero(tokens: int, factor: float) -> None:
    plan = TrainingPlan(tokens=1000, warm_up=100, decay=200)
    assert rate(Progress(tokens=tokens), plan) == pytest.approx(factor)


def test_without_a_decay_the_rate_stays_however_long_the_run_is() -> None:
    assert rate(Progress(tokens=999), TrainingPlan(tokens=1000, warm_up=100)) == 1.0


def test_a_run_without_optimiser_state_warms_up_again() -> None:
    plan = TrainingPlan(tokens=10**9, warm_up=100)
    steps = [Progress(tokens=10**6, step=step, resumed=50) for step in (50, 59, 69, 100)]
    assert [rate(progress, plan) for progress in steps] == pytest.approx([0.05, 0.5, 1.0, 1.0])


def test_a_run_can_be_resumed_from_weights_alone(config: LlamaConfig, tmp_path: Path) -> None:
    """What another machine is sent: a fifth of the bytes, the same place in the rows."""
    there = train(config, ROWS, PLAN, tmp_path, stop=after(2))
    exact = tmp_path / checkpoint.FULL_FILE
    assert (tmp_path / checkpoint.WEIGHTS_FILE).stat().st_size < exact.stat().st_size / 2
    exact.unlink()
    fresh = create_model(config, seed=9)
    progress = checkpoint.load(tmp_path, fresh, create_optimisers(fresh, PLAN))
    assert (progress["step"], progress["resumed"]) == (2, 2)
    for name, parameter in there.named_parameters():
        assert torch.allclose(parameter, fresh.get_parameter(name), rtol=5e-3, atol=1e-6), name
    seen: list[int] = []
    train(config, ROWS, PLAN, tmp_path, lambda progress, loss: seen.append(progress.step))
    assert seen == [3, 4, 5, 6]


def test_a_pause_of_a_run_changes_nothing(config: LlamaConfig, tmp_path: Path) -> None:
    """Its schedule counts tokens, and what it notes of time is the processor's."""
    began = time.process_time()
    seen: list[float] = []

    def report(progress: Progress, loss: float) -> None:
        time.sleep(0.1)
        seen.append(progress.seconds)

    train(config, ROWS, PLAN, tmp_path, report)
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

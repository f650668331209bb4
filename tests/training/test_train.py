"""A run can be stopped anywhere, learns, and ends its budget with a rate of zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from ngram_builders.errors import UserError
from spd_lsp.training import train as module
from spd_lsp.training.train import Progress, TrainingPlan, train
from tests.training.conftest import random_llama

ROWS = np.random.default_rng(0).integers(0, 320, size=(5, 48)).astype(np.uint16)
PLAN = TrainingPlan(tokens=6 * 2 * 48, warm_up=96, decay=400)


class Stopped(Exception):
    """Somebody pressed Ctrl-C."""


def fresh() -> LlamaForCausalLM:
    return random_llama(320, spread=0.02)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from the last checkpoint, so what came after that is learnt again."""
    whole, parts = fresh(), fresh()
    train(whole, ROWS, PLAN, tmp_path / "whole")
    monkeypatch.setattr(module, "_STEPS_A_CHECKPOINT", 2)
    seen: list[int] = []

    def stop_at_three(progress: Progress, loss: float) -> None:
        seen.append(progress.step)
        if seen.count(3) == 1 and progress.step == 3:
            raise Stopped

    with pytest.raises(Stopped):
        train(parts, ROWS, PLAN, tmp_path / "parts", stop_at_three)
    train(parts, ROWS, PLAN, tmp_path / "parts", stop_at_three)
    assert seen == [1, 2, 3, 3, 4, 5, 6]
    for name, parameter in whole.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, parts.get_parameter(name)), name


def test_a_finished_run_is_unchanged_and_goes_on_with_its_own_plan_alone(tmp_path: Path) -> None:
    train(fresh(), ROWS, PLAN, tmp_path / "run")
    steps: list[int] = []
    train(fresh(), ROWS, PLAN, tmp_path / "run", lambda progress, loss: steps.append(progress.step))
    assert steps == []
    with pytest.raises(UserError, match=r"other settings, .*use these, or another --work"):
        train(fresh(), ROWS, TrainingPlan(tokens=9), tmp_path / "run")

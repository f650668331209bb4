"""A model learns in full precision from passes in low precision."""

from __future__ import annotations

import torch
from torch import nn

from spd_lsp.training.precision import LowCopy


def test_steps_too_small_for_low_precision_add_up() -> None:
    copy = LowCopy(nn.Linear(1, 1, bias=False), torch.bfloat16)
    nn.init.ones_(copy.master.weight)
    for _ in range(100):
        copy.master.weight.data += 1e-4
        copy.refresh()
    assert 1.0 < copy.model.weight.item() <= 1.0 + 100e-4
    assert copy.model.weight.dtype == torch.bfloat16


def test_gradients_of_several_passes_add_up_in_the_model() -> None:
    copy = LowCopy(nn.Linear(2, 1, bias=False), torch.bfloat16)
    for number in (1.0, 2.0):
        copy.model(torch.full((1, 2), number, dtype=torch.bfloat16)).sum().backward()
        copy.move_gradients()
    assert copy.master.weight.grad is not None
    assert copy.master.weight.grad.dtype == torch.float32
    assert copy.master.weight.grad.tolist() == [[3.0, 3.0]]
    assert copy.model.weight.grad is None


def test_in_full_precision_there_is_no_copy() -> None:
    copy = LowCopy(nn.Linear(2, 1), torch.float32)
    assert copy.model is copy.master

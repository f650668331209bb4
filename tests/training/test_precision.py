"""A model learns in full precision from passes in low precision."""

from __future__ import annotations

import torch
from torch import nn

from spd_lsp.training.precision import LowCopy


def test_steps_too_small_for_low_precision_add_up() -> None:
    copy = LowCopy(nn.Linear(1, 1, bias=False))
    nn.init.ones_(copy.master.weight)
    for _ in range(100):
        copy.master.weight.data += 1e-4
        copy.refresh()
    assert 1.0 < copy.model.weight.item() <= 1.0 + 100e-4
    assert copy.model.weight.dtype == torch.bfloat16


def test_gradients_of_several_passes_add_up_in_the_model() -> None:
    copy = LowCopy(nn.Linear(2, 1, bias=False))
    for number in (1.0, 2.0):
        copy.model(torch.full((1, 2), number, dtype=torch.bfloat16)).sum().backward()
        copy.move_gradients()
    assert copy.master.weight.grad is not None
    assert copy.master.weight.grad.dtype == torch.float32
    assert copy.master.weight.grad.tolist() == [[3.0, 3.0]]
    assert copy.model.weight.grad is None


def test_matrices_of_layers_are_rounded_to_four_bits_and_learn_all_the_same() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(32, 1)]), "embedding": nn.Embedding(1, 32)})
    wrapped = nn.ModuleDict({"model": model})
    copy = LowCopy(wrapped)
    own, low = (next(one["model"]["layers"][0].parameters()) for one in (copy.master, copy.model))
    assert 2 < len(set(low.flatten().tolist())) <= 16 < len(set(own.flatten().tolist()))
    assert torch.equal(copy.model["model"]["embedding"].weight, model["embedding"].weight.bfloat16())
    low.sum().backward()
    copy.move_gradients()
    assert own.grad.tolist() == [[1.0] * 32]

"""A model learns in full precision from passes with the weights that are stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from torch import nn

from spd_lsp.training.rounding import LowCopy, round_to_four_bits

Q4_0 = GGMLQuantizationType.Q4_0


def test_what_is_rounded_is_stored_as_it_is_and_as_near_as_ggmls_own() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    rounded = round_to_four_bits(torch.from_numpy(weights)).numpy()
    assert np.array_equal(dequantize(quantize(rounded, Q4_0), Q4_0), rounded)
    theirs = dequantize(quantize(weights, Q4_0), Q4_0)
    assert ((rounded - weights) ** 2).mean() == pytest.approx(((theirs - weights) ** 2).mean(), rel=0.02)
    assert not round_to_four_bits(torch.zeros(2, 32)).any()


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
    assert copy.master.weight.grad.tolist() == [[3.0, 3.0]]
    assert copy.model.weight.grad is None


def test_matrices_of_layers_have_sixteen_values_a_block() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(32, 1)]), "embedding": nn.Embedding(1, 32)})
    copy = LowCopy(nn.ModuleDict({"model": model}))
    own, low = (next(one["model"]["layers"][0].parameters()) for one in (copy.master, copy.model))
    assert 2 < len(set(low.flatten().tolist())) <= 16 < len(set(own.flatten().tolist()))
    assert torch.equal(copy.model["model"]["embedding"].weight, model["embedding"].weight.bfloat16())

"""Blocks of four bits are what GGML reads, and what a model learns with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from spd_lsp.training.four_bits import quantise, round_into

Q4_0 = GGMLQuantizationType.Q4_0


def squared_error(weights: np.ndarray, stored: np.ndarray) -> float:
    return float(((dequantize(stored, Q4_0) - weights) ** 2).mean())


def test_the_error_is_about_that_of_ggmls_own_rounding() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    ours, theirs = quantise(weights), quantize(weights, Q4_0)
    assert ours.shape == theirs.shape
    assert squared_error(weights, ours) == pytest.approx(squared_error(weights, theirs), rel=0.02)


def test_a_model_learns_with_what_is_stored() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    rounded = torch.zeros(64, 96)
    round_into(rounded, torch.from_numpy(weights))
    assert np.array_equal(rounded.numpy(), dequantize(quantise(weights), Q4_0))


def test_weights_that_four_bits_can_say_are_kept() -> None:
    weights = 0.25 * np.random.default_rng(0).integers(-8, 8, (8, 64)).astype(np.float32)
    weights[:, ::32] = -2.0  # the largest of each block
    assert squared_error(weights, quantise(weights)) == pytest.approx(0, abs=1e-12)


def test_a_block_of_zeros_stays_one() -> None:
    assert squared_error(np.zeros((2, 32), np.float32), quantise(np.zeros((2, 32), np.float32))) == 0

"""Blocks of four bits are what GGML reads, and nearer to the weights than its own rounding."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from spd_lsp.training.four_bits import quantise

Q4_0 = GGMLQuantizationType.Q4_0


def squared_error(weights: np.ndarray, stored: np.ndarray) -> float:
    return float(((dequantize(stored, Q4_0) - weights) ** 2).mean())


def test_the_error_is_smaller_than_with_ggmls_scales() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    ours, theirs = quantise(weights), quantize(weights, Q4_0)
    assert ours.shape == theirs.shape
    assert squared_error(weights, ours) < 0.92 * squared_error(weights, theirs)


def test_weights_that_four_bits_can_say_are_kept() -> None:
    weights = 0.25 * np.random.default_rng(0).integers(-8, 8, (8, 64)).astype(np.float32)
    assert squared_error(weights, quantise(weights)) == pytest.approx(0, abs=1e-12)


def test_a_block_of_zeros_stays_one() -> None:
    assert squared_error(np.zeros((2, 32), np.float32), quantise(np.zeros((2, 32), np.float32))) == 0

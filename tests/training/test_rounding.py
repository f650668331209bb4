"""A model learns in full precision from passes with the weights that are stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from spd_lsp.training.rounding import round_to_four_bits

Q4_0 = GGMLQuantizationType.Q4_0


def test_what_is_rounded_is_stored_as_it_is_and_as_near_as_ggmls_own() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    rounded = round_to_four_bits(torch.from_numpy(weights)).numpy()
    assert np.array_equal(dequantize(quantize(rounded, Q4_0), Q4_0), rounded)
    theirs = dequantize(quantize(weights, Q4_0), Q4_0)
    assert ((rounded - weights) ** 2).mean() == pytest.approx(((theirs - weights) ** 2).mean(), rel=0.02)
    assert not round_to_four_bits(torch.zeros(2, 32)).any()

"""Weights as 8-bit integers by torch, where this machine multiplies them faster than floats.

A step reads all weights once, and large models are as fast as memory: a quarter of the bytes is a quarter of the
time, where the processor has the instructions. That is timed, not looked up.

Legend: M positions, I inputs, O outputs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.decoder import Decoder, Dense
from spd_lsp.models.numpy.int8 import replace_linears

_MIN_SPEEDUP = 1.25  # for which 8 bits are worth their error
_TRIALS = 8


class TorchInt8:
    """x W + b with W in 8 bits, a scale for each output, and x quantized to 8 bits on the way."""

    def __init__(self, dense: Dense) -> None:
        weight = torch.from_numpy(np.ascontiguousarray(dense.weight.T))  # [O, I]
        bias = None if dense.bias is None else torch.from_numpy(dense.bias)
        scales = (weight.abs().amax(dim=1) / 127).clamp(min=1e-12)
        with warnings.catch_warnings():  # torch announces that this function will move to another package
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_channel(
                weight, scales, torch.zeros(len(scales), dtype=torch.long), axis=0, dtype=torch.qint8
            )
        self.size = dense.size
        self.packed: Any = torch.ops.quantized.linear_prepack(quantized, bias)

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""
        return self.product(x, reduce_range=overflows())

    def product(self, x: Floats, *, reduce_range: bool) -> Floats:
        """The same; `reduce_range` quantizes the inputs to seven bits instead of eight."""
        y = torch.ops.quantized.linear_dynamic(torch.from_numpy(x), self.packed, reduce_range)
        return np.asarray(y.numpy())


@cache
def overflows() -> bool:
    """Whether the largest products overflow here: processors without VNNI add two of them in 16 bits.

    Seven bits of the inputs never do, for three times the error.
    """
    ones = TorchInt8(Dense(np.ones((64, 16), np.float32)))
    largest = ones.product(np.ones((1, 64), np.float32), reduce_range=False)
    return bool(np.abs(largest - 64).max() > 1)


def quantize(decoder: Decoder) -> Decoder | None:
    """The decoder with products in 8 bits where they are faster; None if none is, or torch lacks the kernels."""
    shapes: dict[tuple[int, ...], list[Dense]] = {}
    for linear in decoder.linears:
        if isinstance(linear, Dense):
            shapes.setdefault(linear.weight.shape, []).append(linear)
    try:
        pairs = [pair for group in shapes.values() for pair in faster_in_8_bits(group)]
    except (RuntimeError, AttributeError, NotImplementedError):
        return None
    return replace_linears(decoder, {id(dense): int8 for dense, int8 in pairs}) if pairs else None


def faster_in_8_bits(group: Sequence[Dense]) -> list[tuple[Dense, TorchInt8]]:
    """Products of one shape with their 8-bit versions, if those are clearly faster; else none.

    Each is read in turn, as in a pass: one alone would stay in the processor's cache, where floats are fast.
    """
    quantized = [TorchInt8(dense) for dense in group]
    x = np.ones((1, group[0].weight.shape[0]), np.float32)
    floats = shortest_time(lambda: [dense(x) for dense in group])
    if floats <= _MIN_SPEEDUP * shortest_time(lambda: [int8(x) for int8 in quantized]):
        return []
    return list(zip(group, quantized, strict=True))


def shortest_time(work: Callable[[], object]) -> float:
    """The least seconds of several runs: other processes only make them longer."""
    times = []
    for _ in range(_TRIALS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)

"""Weights as 8-bit integers, where this machine multiplies them faster than floats.

A step reads all weights once, and large models are as fast as memory: a quarter of the bytes is a quarter of the
time, where the processor has the instructions. That is timed, not looked up.

Legend: M positions, I inputs, O outputs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch

from spd_lsp.engine.linears import Dense, Linear
from spd_lsp.engine.numpy_decoder import Decoder
from spd_lsp.engine.runner import Floats

FASTER = 1.25  # how often as fast 8 bits must be to be worth their error
TIMES = 8


class Int8:
    """x W + b with W in 8 bits, a scale for each output, and x rounded to 8 bits on the way."""

    def __init__(self, dense: Dense) -> None:
        weight = torch.from_numpy(np.ascontiguousarray(dense.weight.T))  # [O, I]
        bias = None if dense.bias is None else torch.from_numpy(dense.bias)
        scales = (weight.abs().amax(dim=1) / 127).clamp(min=1e-12)
        with warnings.catch_warnings():  # torch announces that another package will hold this function
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(
                weight, scales, torch.zeros(len(scales), dtype=torch.long), axis=0, dtype=torch.qint8
            )
        self.size = dense.size
        self.packed: Any = torch.ops.quantized.linear_prepack(rounded, bias)

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""
        # Seven bits of the inputs: eight overflow 16-bit sums on processors without VNNI.
        product = torch.ops.quantized.linear_dynamic(torch.from_numpy(x), self.packed, True)
        found: Floats = product.numpy()
        return found


def quantise(decoder: Decoder) -> Decoder | None:
    """The decoder with each product in 8 bits that is faster so; None if none is, or torch cannot."""
    seen: dict[tuple[int, ...], bool] = {}

    def best(linear: Linear) -> Linear:
        if not isinstance(linear, Dense):
            return linear
        shape = linear.weight.shape
        if shape not in seen:
            seen[shape] = pays(linear)
        return Int8(linear) if seen[shape] else linear

    try:
        layers = [
            replace(
                layer,
                queries_keys_values=best(layer.queries_keys_values),
                attention_out=best(layer.attention_out),
                gate_up=best(layer.gate_up),
                down=best(layer.down),
            )
            for layer in decoder.layers
        ]
        head = best(decoder.head)
    except (RuntimeError, AttributeError, NotImplementedError):  # a torch without these kernels
        return None
    if not any(seen.values()):
        return None
    # An embedding that was the head too lies as its transpose; with no head to serve, its rows are put together.
    return replace(decoder, layers=layers, head=head, embedding=np.ascontiguousarray(decoder.embedding))


def pays(dense: Dense) -> bool:
    """Whether 8 bits are clearly faster for one position."""
    x = np.ones((1, dense.weight.shape[0]), np.float32)
    narrow = Int8(dense)
    return seconds(lambda: dense(x)) > FASTER * seconds(lambda: narrow(x))


def seconds(work: Callable[[], object]) -> float:
    """The median time of some work."""
    times = []
    for _ in range(TIMES):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return median(times)

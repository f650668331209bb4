"""Weights as 8-bit integers, where this machine multiplies them faster than floats.

A step reads all weights once, and large models are as fast as memory: a quarter of the bytes is a quarter of the
time, where the processor has the instructions. That is timed, not looked up.

Legend: M positions, I inputs, O outputs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.decoder import Decoder
from spd_lsp.models.numpy.linear import Dense, Linear

_FASTER = 1.25  # how often as fast 8 bits must be to be worth their error
_TIMES = 8


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
        return self.product(x, narrower=overflows())

    def product(self, x: Floats, *, narrower: bool) -> Floats:
        """The same with seven bits of the inputs, if `narrower`, instead of eight."""
        found: Floats = torch.ops.quantized.linear_dynamic(torch.from_numpy(x), self.packed, narrower).numpy()
        return found


@cache
def overflows() -> bool:
    """Whether the largest products overflow here: processors without VNNI add two of them in 16 bits.

    Seven bits of the inputs never do, for three times the error.
    """
    largest = Int8(Dense(np.ones((64, 16), np.float32))).product(np.ones((1, 64), np.float32), narrower=False)
    return bool(np.abs(largest - 64).max() > 1)


def quantise(decoder: Decoder) -> Decoder | None:
    """The decoder with the products in 8 bits that are faster so; None if none is, or torch cannot."""
    shapes: dict[tuple[int, ...], list[Dense]] = {}
    for linear in [*(linear for layer in decoder.layers for linear in layer.linears), decoder.head]:
        if isinstance(linear, Dense):
            shapes.setdefault(linear.weight.shape, []).append(linear)
    try:
        narrow = [pair for group in shapes.values() for pair in faster(group)]
    except (RuntimeError, AttributeError, NotImplementedError):  # a torch without these kernels
        return None
    return _replaced(decoder, {id(dense): int8 for dense, int8 in narrow}) if narrow else None


def faster(group: Sequence[Dense]) -> list[tuple[Dense, Int8]]:
    """Products of one shape with their 8-bit twins, if those are clearly faster; else none.

    Each is read in turn, as in a pass: one alone would stay in the processor's cache, where floats are fast.
    """
    narrow = [Int8(dense) for dense in group]
    x = np.ones((1, group[0].weight.shape[0]), np.float32)
    paid = seconds(lambda: [dense(x) for dense in group]) > _FASTER * seconds(lambda: [one(x) for one in narrow])
    return list(zip(group, narrow, strict=True)) if paid else []


def _replaced(decoder: Decoder, twins: Mapping[int, Int8]) -> Decoder:
    """The decoder with some of its products replaced, by their identity."""

    def best(linear: Linear) -> Linear:
        return twins.get(id(linear), linear)

    layers = [
        replace(
            layer,
            queries_keys_values=best(layer.queries_keys_values),
            attention_out=best(layer.attention_out),
            up=best(layer.up),
            down=best(layer.down),
        )
        for layer in decoder.layers
    ]
    decoder = replace(decoder, layers=layers, head=best(decoder.head))
    if isinstance(decoder.head, Int8):  # an embedding that was the head too lay as its transpose
        decoder = replace(decoder, embedding=np.ascontiguousarray(decoder.embedding))
    return decoder


def seconds(work: Callable[[], object]) -> float:
    """The shortest time of some work: neighbours only make it longer."""
    times = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)

"""A decoder's products in 8 bits, by the compiled kernel: a quarter of the bytes that a step reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from spd_lsp.models.numpy.decoder import Decoder, Dense, Int8, Linear
from spd_lsp.models.numpy.model_kernel import quantize_rows


def in_8_bits(decoder: Decoder) -> Decoder:
    """The decoder with all its products in 8 bits. The embedding stays as exact as it is."""
    dense = [linear for linear in decoder.linears if isinstance(linear, Dense)]
    return replace_linears(decoder, {id(linear): to_int8(linear) for linear in dense})


def to_int8(dense: Dense) -> Int8:
    """A product in 8 bits."""
    values, scales = quantize_rows(np.ascontiguousarray(dense.weight.T))
    return Int8(values, scales, dense.bias)


def replace_linears(decoder: Decoder, replacements: Mapping[int, Linear]) -> Decoder:
    """The decoder with some of its products replaced, by their identity."""

    def best(linear: Linear) -> Linear:
        return replacements.get(id(linear), linear)

    names = ("queries_keys_values", "attention_out", "up", "down")
    layers = [replace(layer, **{name: best(getattr(layer, name)) for name in names}) for layer in decoder.layers]
    embedding = decoder.embedding
    if id(decoder.head) in replacements:  # an embedding that was also the head was stored as its transpose
        embedding = np.ascontiguousarray(embedding)
    return replace(decoder, layers=layers, head=best(decoder.head), embedding=embedding)

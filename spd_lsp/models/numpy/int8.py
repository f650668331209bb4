"""A decoder's products in 8 bits, by the compiled kernel: a quarter of the bytes that a step reads.

Where it is used is not timed: the same model gives the same drafts on every machine that has the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from spd_lsp.models.numpy.decoder import Decoder, Dense, Embedding, FineInt8, Int8, Linear, NumpyEngine
from spd_lsp.models.numpy.model_kernel import load_kernel, quantize_rows
from spd_lsp.models.self_test import MAX_DIVERGENCE, all_logits, kl_divergence, probe_ids

_PART = 1024  # rows that are quantized at once


def engine_in_8_bits(exact: NumpyEngine, report: Callable[[str], None]) -> NumpyEngine:
    """The same engine with 8-bit weights, where the kernel is there and predictions stay nearly the same."""
    if load_kernel() is None:
        return exact
    engine = NumpyEngine(in_8_bits(exact.decoder))
    ids = probe_ids(len(exact.decoder.embedding))
    divergence = kl_divergence(all_logits(engine, ids), all_logits(exact, ids))
    if divergence < MAX_DIVERGENCE:
        return engine
    report(f"runs in 32 bits: in 8 bits, predictions differ by {divergence:.1e} nats")
    return exact


def in_8_bits(decoder: Decoder) -> Decoder:
    """The decoder with all its products in 8 bits, the head's inputs in 15."""
    replacements = {
        id(linear): to_int8(linear, FineInt8 if linear is decoder.head else Int8)
        for linear in decoder.linears
        if isinstance(linear, Dense)
    }
    decoder = replace_linears(decoder, replacements)
    return replace(decoder, embedding=_in_half_precision(decoder.embedding))


def to_int8(dense: Dense, kind: type[Int8] = Int8) -> Int8:
    """A product in 8 bits, quantized in parts: copies of a whole head would stay in the process's memory."""
    rows = dense.weight.T  # [O, I]
    values, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
    for part in (slice(start, start + _PART) for start in range(0, len(rows), _PART)):
        values[part], scales[part] = quantize_rows(np.ascontiguousarray(rows[part]))
    return kind(values, scales, dense.bias)


def _in_half_precision(embedding: Embedding) -> Embedding:
    """The embedding in half the memory, if nothing is lost: if the weights were stored so."""
    if not isinstance(embedding, np.ndarray):
        return embedding
    with np.errstate(over="ignore"):
        half = embedding.astype(np.float16)
    return half if np.array_equal(half, embedding) else embedding


def replace_linears(decoder: Decoder, replacements: Mapping[int, Linear]) -> Decoder:
    """The decoder with some of its products replaced, by their identity."""

    def best(linear: Linear) -> Linear:
        return replacements.get(id(linear), linear)

    names = ("queries_keys_values", "attention_out", "up", "down")
    layers = [replace(layer, **{name: best(getattr(layer, name)) for name in names}) for layer in decoder.layers]
    embedding = decoder.embedding
    if id(decoder.head) in replacements:  # an embedding that was also the head was stored as its transpose
        embedding = np.ascontiguousarray(embedding)
    adapter = decoder.adapter
    if adapter is not None:
        adapter = replace(adapter, gate_up=best(adapter.gate_up), down=best(adapter.down))
    return replace(decoder, layers=layers, head=best(decoder.head), embedding=embedding, adapter=adapter)

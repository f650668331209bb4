"""Whether a model runs in the torch decoder, on a GPU with captured steps, or in transformers; never by its name.

Half precision hides small mistakes behind rounding: so a small network of the same architecture is compared in
single precision first, and then the loaded one as far as rounding permits. No GPU has run this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine
from spd_lsp.models.self_test import (
    ROUNDING,
    SHORT_WINDOW,
    all_logits,
    probe_ids,
    read_every_way,
)
from spd_lsp.models.topk import TopKRequest
from spd_lsp.models.torch.convert import UnsupportedModel, convert, decoder_config
from spd_lsp.models.torch.cuda_graphs import Capture, CudaCapture
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.torch.small_network import check_small_network

_USUAL_LENGTHS = (1024, 1536)  # of prompts, whose steps are captured before anybody waits
_MAX_OWN_ERRORS = 8  # allowed difference relative to the reference's from itself; measured: up to 3.5
_MAX_ULPS = 4  # allowed difference in any case; where up to 4 were measured, the reference differed as well
_K, _EXTRA = 20, 60  # logits that choosing three drafts needs
_TRIALS = 5
_MAX_SLOWDOWN = 1.15  # from which a second row costs more than it brings


def fastest_engine(reference: Engine, network: Any, report: Callable[[str], None]) -> Engine:
    """An engine with the network's weights that predicts what the reference predicts, or the reference."""
    if getattr(network.config, "quantization_config", None):
        return reference  # its weights are not the matrices that the decoder multiplies
    kind = network.device.type
    if kind not in ("cuda", "cpu"):
        report(f"runs in transformers: the decoder was not made for {kind}")
        return reference
    return in_torch(reference, network, report, CudaCapture if kind == "cuda" else lambda device: None)


def in_torch(
    reference: Engine,
    network: Any,
    report: Callable[[str], None],
    capture: Callable[[torch.device], Capture | None],
) -> Engine:
    """The torch engine if it predicts what the reference predicts, or the reference."""
    try:
        decoder_config(network)  # raises for what it was not made for
        check_small_network(network.config, lambda small: TorchEngine(convert(small)))
        engine = TorchEngine(convert(network), capture(network.device), report)
        if mismatch := find_mismatch(engine, reference):
            raise UnsupportedModel(mismatch)
        if engine.capture:
            engine.selects_on_device = selecting_is_faster(engine)
            engine.second_row_is_free = second_row_is_free(engine)
            engine.warm_up(_USUAL_LENGTHS)
    except (UnsupportedModel, RuntimeError) as error:  # also of CUDA, or too little memory for a second engine
        report(f"runs in transformers: {str(error).splitlines()[0]}")
        return reference
    return engine


def find_mismatch(engine: TorchEngine, reference: Engine) -> str:
    """The way of reading a probe in which an engine differs from the reference; "" if there is none.

    Both round, and the reference itself differs between two ways of reading.
    """
    ids = probe_ids(engine.vocabulary)
    expected = all_logits(reference, ids)
    own = max(distance(logits, expected[positions]) for _, positions, logits in read_every_way(reference, ids))
    allowed = max(_MAX_OWN_ERRORS * own, _MAX_ULPS * torch.finfo(engine.decoder.embedding.dtype).eps, ROUNDING)
    for way, positions, logits in read_every_way(engine, ids):
        error = distance(logits, expected[positions])
        if not error < allowed:  # NaN is a mismatch as well
            return f"{way} differs by {error:.1%}, and {allowed:.1%} would be rounding"
    return ""


def selecting_is_faster(engine: TorchEngine, clock: Callable[[], float] = time.perf_counter) -> bool:
    """Whether a step takes less time if the device selects the few logits that are needed, and selects the same.

    Otherwise all logits come to the host, which selects: better on a slow device with a small vocabulary.
    """
    ids, weights = probe_ids(engine.vocabulary)[:SHORT_WINDOW], np.full(3, 1 / 3)
    extra_ids = np.arange(_EXTRA) % engine.vocabulary
    logits: dict[bool, Floats] = {}
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(1 + _TRIALS):  # the first captures
        for on_device in (False, True):
            engine.selects_on_device = on_device
            engine.prefill(ids)
            started = clock()
            selected = engine.step_top_k(ids[:3], weights, _K, extra_ids)
            times[on_device].append(clock() - started)
            logits[on_device] = np.concatenate([selected.logits, selected.extra_logits, [selected.log_z]])
    same = np.allclose(logits[True], logits[False], rtol=ROUNDING, atol=ROUNDING)
    return same and min(times[True][1:]) < min(times[False][1:])


def second_row_is_free(engine: TorchEngine, clock: Callable[[], float] = time.perf_counter) -> bool:
    """Whether a pass of two rows that continue one prompt takes at most 1.15 times as long as one of one row."""
    ids, weights = probe_ids(engine.vocabulary), np.full(3, 1 / 3)
    request = TopKRequest(_K, [np.arange(_EXTRA) % engine.vocabulary] * 2)
    rows = [(ids[:3], weights)] * 2
    times: list[tuple[float, float]] = []
    for _ in range(1 + _TRIALS):  # the first captures
        engine.prefill(ids)
        started = clock()
        engine.step_top_k(ids[:3], weights, _K, request.extra_ids[0])
        between = clock()
        engine.step_rows_top_k(rows, [0, 0], request)  # copies the prompt, once for each completion
        begun = clock()
        engine.step_rows_top_k(rows, [0, 1], request)
        times.append((between - started, clock() - begun))
    one, two = map(min, zip(*times[1:], strict=True))
    return bool(two <= _MAX_SLOWDOWN * one)


def distance(logits: Floats, expected: Floats) -> float:
    """How far logits are from those expected, relative to their spread: [T, V] twice. Constants do not count."""
    a, b = (each - each.mean(axis=-1, keepdims=True) for each in (logits, expected))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))

"""Which engine runs a model: the fastest one here that passes the self-test, never by the model's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import SMALL_MODEL
from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.decoder import Decoder, NumpyEngine
from spd_lsp.models.numpy.torch_int8 import quantize
from spd_lsp.models.numpy.weights import UnsupportedModel
from spd_lsp.models.self_test import (
    MAX_DIVERGENCE,
    SHORT_WINDOW,
    Probe,
    all_logits,
    find_mismatch,
    kl_divergence,
    probe_reference,
)
from spd_lsp.models.torch.select import on_gpu


def fastest_engine(reference: Engine, network: Any, report: Callable[[str], None]) -> Engine:
    """An engine with the network's weights that computes what the reference computes."""
    if getattr(network.config, "quantization_config", None):
        return reference  # its weights are not the matrices that the other engines multiply
    if network.device.type == "cuda":
        return on_gpu(reference, network, report)
    try:
        exact, probe = tested_numpy_engine(reference, network)
    except UnsupportedModel as reason:
        report(f"runs in transformers: {reason}")
        return reference
    return exact if exact.decoder.size <= SMALL_MODEL else _in_8_bits(exact, probe, report)


def tested_numpy_engine(reference: Engine, network: Any) -> tuple[NumpyEngine, Probe]:
    """The NumPy engine in single precision, and its test; `UnsupportedModel` if it computes something else."""
    decoder = convert(network)
    engine, probe = NumpyEngine(decoder), probe_reference(reference, len(decoder.embedding))
    if mismatch := find_mismatch(engine, probe) or _window_mismatch(decoder, reference, network):
        raise UnsupportedModel(f"in NumPy, {mismatch}")
    return engine, probe


def _window_mismatch(decoder: Decoder, reference: Engine, network: Any) -> str:
    """What the self-test finds with sliding windows shorter than its probe; "" if nothing.

    The windows that a model was made for would need a probe of thousands of tokens.
    """
    windows, config = decoder.config.windows, network.config.get_text_config()
    if not windows:
        return ""
    shorter = [min(SHORT_WINDOW, window) if window == config.sliding_window else window for window in windows]
    engine = NumpyEngine(replace(decoder, config=replace(decoder.config, windows=shorter)))
    own, config.sliding_window = config.sliding_window, SHORT_WINDOW
    try:
        mismatch = find_mismatch(engine, probe_reference(reference, len(decoder.embedding)))
    finally:
        config.sliding_window = own
    return mismatch and f"with a short window, {mismatch}"


def _in_8_bits(exact: NumpyEngine, probe: Probe, report: Callable[[str], None]) -> Engine:
    """The same engine with 8-bit weights where they are faster, if its predictions stay the same."""
    decoder = quantize(exact.decoder)
    if decoder is None:
        return exact
    engine = NumpyEngine(decoder)
    divergence = kl_divergence(all_logits(engine, probe.ids), probe.logits)
    if not divergence < MAX_DIVERGENCE:
        report(f"runs in 32 bits: in 8 bits, predictions differ by {divergence:.1e} nats")
        return exact
    report(f"runs in 8 bits: predictions differ by {divergence:.1e} nats")
    return engine

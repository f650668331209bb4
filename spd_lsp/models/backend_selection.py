"""Which engine runs a model: the fastest one here that passes the self-test, never by the model's name.

Comes in: the reference. Goes out: it or a faster engine, and one line that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spd_lsp.models.base import Runner
from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.decoder import Decoder
from spd_lsp.models.numpy.engine import NumpyRunner
from spd_lsp.models.numpy.int8 import quantise
from spd_lsp.models.numpy.weights import Unlike
from spd_lsp.models.self_test import DIVERGENCE, SHORT, Expected, divergence, expect, fault, whole
from spd_lsp.models.torch.select import on_gpu

SMALL = 15_000_000  # parameters up to which a step is calls rather than bytes: 8 bits gain little there


def fastest(reference: Runner, network: Any, report: Callable[[str], None]) -> Runner:
    """An engine with the network's weights that computes what the reference computes."""
    if network.device.type == "cuda":
        return on_gpu(reference, network, report)
    try:
        decoder = convert(network)
    except Unlike as reason:
        report(f"runs in transformers: {reason}")
        return reference
    expected = expect(reference, len(decoder.embedding))
    exact = NumpyRunner(decoder)
    if found := fault(exact, expected) or fault_of_windows(decoder, reference, network):
        report(f"runs in transformers: in NumPy, {found}")
        return reference
    return _narrowest(exact, expected, report) if decoder.size > SMALL else exact


def fault_of_windows(decoder: Decoder, reference: Runner, network: Any) -> str:
    """What the self-test finds when sliding windows are so short that its probe leaves them; "" if nothing.

    Those that a model was made for would take a probe of thousands of tokens. The network has its own back.
    """
    shape, config = decoder.shape, network.config.get_text_config()
    if not shape.windows:
        return ""
    windows = [min(SHORT, window) if window == config.sliding_window else window for window in shape.windows]
    shortened = NumpyRunner(replace(decoder, shape=replace(shape, windows=windows)))
    kept, config.sliding_window = config.sliding_window, SHORT
    try:
        found = fault(shortened, expect(reference, len(decoder.embedding)))
    finally:
        config.sliding_window = kept
    return found and f"with a short window, {found}"


def _narrowest(exact: NumpyRunner, expected: Expected, report: Callable[[str], None]) -> Runner:
    """The same engine with 8-bit weights where they are faster, if its predictions stay the same."""
    decoder = quantise(exact.decoder)
    if decoder is None:
        return exact
    narrow = NumpyRunner(decoder)
    differs = divergence(whole(narrow, expected.ids), expected.logits)
    if not differs < DIVERGENCE:
        report(f"runs in 32 bits: in 8 bits, predictions differ by {differs:.1e} nats")
        return exact
    report(f"runs in 8 bits: predictions differ by {differs:.1e} nats")
    return narrow

"""Whether a model on a GPU runs in the torch decoder, with steps captured as one launch, or in transformers.

Comes in: the reference and its network. Goes out: the engine. Both compute in half precision, in which two right
answers differ by a hundredth: so how much the reference differs from itself is measured too. No GPU has run this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from spd_lsp.engine.assembly import Unlike
from spd_lsp.engine.frames import Capture, CudaCapture
from spd_lsp.engine.runner import Floats, Runner
from spd_lsp.engine.self_test import ROUNDING, probe, readings, whole
from spd_lsp.engine.torch_conversion import convert
from spd_lsp.engine.torch_runner import TorchRunner

USUAL = (1024, 1536)  # lengths up to which prompts are looked at, and which are captured before anybody waits
OF_OWN = (
    3  # how many times as far as from itself the reference may be from another engine; measured: 2 and 4 to 200
)
STEPS = 2  # of rounding, likewise


def on_gpu(
    reference: Runner,
    network: Any,
    report: Callable[[str], None],
    capture: Callable[[torch.device], Capture | None] = CudaCapture,
) -> Runner:
    """The torch engine with the network's weights if it predicts what the reference predicts, or the reference."""
    try:
        engine = TorchRunner(convert(network), capture(network.device), report)
        found = mistake(engine, reference)
        if not found:
            engine.warm_up(USUAL)
    except Unlike as reason:
        found = str(reason)
    except RuntimeError as error:  # of CUDA, or too little memory for a second engine
        found = str(error).splitlines()[0]
    if found:
        report(f"runs in transformers: {found}")
        return reference
    return engine


def mistake(engine: TorchRunner, reference: Runner) -> str:
    """In which way of reading a probe an engine is not the reference; "" if in none.

    Both round, and the reference by itself differs as much between two ways of reading.
    """
    ids = probe(len(engine.decoder.embedding))
    expected = whole(reference, ids)
    own = max(distance(logits, expected[places]) for _, places, logits in readings(reference, ids))
    allowed = max(OF_OWN * own, STEPS * torch.finfo(engine.decoder.embedding.dtype).eps, ROUNDING)
    for way, places, logits in readings(engine, ids):
        differs = distance(logits, expected[places])
        if not differs < allowed:  # not a number is a fault as well
            return f"on the GPU, {way} differs by {differs:.1%}, and {allowed:.1%} would be rounding"
    return ""


def distance(found: Floats, expected: Floats) -> float:
    """How far logits are from those expected, relative to their spread: [T, V] twice. Constants do not count."""
    a, b = (logits - logits.mean(axis=-1, keepdims=True) for logits in (found, expected))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))

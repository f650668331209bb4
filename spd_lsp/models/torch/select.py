"""Whether a model on a GPU runs in the torch decoder, with steps captured as one launch, or in transformers.

Comes in: the reference and its network. Goes out: the engine. Half precision hides small mistakes behind rounding:
so a small network of the same kind is compared in single precision, and then what was loaded as far as rounding
lets one see. No GPU has run this.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Runner
from spd_lsp.models.numpy.convert import windows_of
from spd_lsp.models.numpy.weights import Unlike
from spd_lsp.models.self_test import ROUNDING, SHORT, expect, fault, probe, readings, whole
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.cuda_graphs import Capture, CudaCapture
from spd_lsp.models.torch.engine import TorchRunner
from spd_lsp.models.transformers_engine import CausalModel

_USUAL = (1024, 1536)  # lengths up to which prompts are looked at, and which are captured before anybody waits
_OF_OWN = 8  # how many times as far as from itself the reference may be from another engine; measured: up to 3.5
_STEPS = 4  # of rounding that are allowed in any case; where up to 4 were measured, the reference strayed as well
VOCABULARY, WIDTH = 64, 8  # of a small network, and of its heads
FEW = 20, 60  # logits that choosing three drafts needs: likely tokens, and those that n-grams propose
_TRIALS = 5


def on_gpu(
    reference: Runner,
    network: Any,
    report: Callable[[str], None],
    capture: Callable[[torch.device], Capture | None] = CudaCapture,
) -> Runner:
    """The torch engine with the network's weights if it predicts what the reference predicts, or the reference."""
    try:
        if found := _unlikeness(network.config):
            raise Unlike(found)
        engine = TorchRunner(convert(network), capture(network.device), report)
        found = mistake(engine, reference)
        if not found:
            engine.selects = quicker_to_select(engine)
            engine.warm_up(_USUAL)
    except Unlike as reason:
        found = str(reason)
    except RuntimeError as error:  # of CUDA, or too little memory for a second engine
        found = str(error).splitlines()[0]
    if found:
        report(f"runs in transformers: {found}")
        return reference
    return engine


def _unlikeness(config: Any) -> str:
    """In what a small network of this kind differs from the torch decoder in single precision; "" if in nothing.

    It has as many layers and heads, since kinds may treat each in its own way.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        network = _small_network(config)
        for parameter in network.parameters():
            if parameter.dim() > 1:  # so large that attention and activations are far from linear
                parameter.data.normal_(0, 2 * parameter.shape[-1] ** -0.5)
            else:
                parameter.data += 0.2 * torch.randn_like(parameter)
        differs = fault(TorchRunner(convert(network)), expect(CausalModel(network), VOCABULARY))
    return f"in single precision, {differs}" if differs else ""


def _small_network(config: Any) -> Any:
    """The same kind with narrow heads and few tokens; raises `Unlike` for what cannot be made small."""
    small = copy.deepcopy(config)
    try:
        small.hidden_size = WIDTH * small.num_attention_heads
        small.intermediate_size = 2 * small.hidden_size
        small.head_dim, small.vocab_size, small.pad_token_id = WIDTH, VOCABULARY, None
        if windows_of(small):
            small.sliding_window = SHORT
        return AutoModelForCausalLM.from_config(small, dtype=torch.float32)  # type: ignore[no-untyped-call]
    except Exception as error:  # each kind has ways of its own to refuse
        raise Unlike(f"no small model of its kind can be made ({str(error).splitlines()[0]})") from error


def mistake(engine: TorchRunner, reference: Runner) -> str:
    """In which way of reading a probe an engine is not the reference; "" if in none.

    Both round, and the reference by itself differs between two ways of reading.
    """
    ids = probe(len(engine.decoder.embedding))
    expected = whole(reference, ids)
    own = max(distance(logits, expected[places]) for _, places, logits in readings(reference, ids))
    allowed = max(_OF_OWN * own, _STEPS * torch.finfo(engine.decoder.embedding.dtype).eps, ROUNDING)
    for way, places, logits in readings(engine, ids):
        differs = distance(logits, expected[places])
        if not differs < allowed:  # not a number is a fault as well
            return f"on the GPU, {way} differs by {differs:.1%}, and {allowed:.1%} would be rounding"
    return ""


def quicker_to_select(engine: TorchRunner, clock: Callable[[], float] = time.perf_counter) -> bool:
    """Whether a step takes less time if the device finds the few logits that choosing needs, and finds the same.

    Otherwise all logits come to the host, which chooses among them: better on a slow device with few tokens.
    """
    r, asked = FEW
    ids, weights = probe(len(engine.decoder.embedding))[:SHORT], np.full(3, 1 / 3)
    theirs = np.arange(asked) % engine.vocabulary
    found: dict[bool, tuple[Floats, list[float]]] = {}
    for _ in range(1 + _TRIALS):  # the first is a warm-up: it captures
        for selects in (False, True):
            engine.selects = selects
            engine.prefill(ids)
            started = clock()
            said = engine.step_likeliest(ids[:3], weights, r, theirs)
            taken = clock() - started
            logits = np.concatenate([said.logits, said.asked, [said.log_z]])
            found[selects] = logits, [*found.get(selects, (logits, []))[1], taken]
    (whole, slow), (few, quick) = found[False], found[True]
    return np.allclose(few, whole, rtol=ROUNDING, atol=ROUNDING) and min(quick[1:]) < min(slow[1:])


def distance(found: Floats, expected: Floats) -> float:
    """How far logits are from those expected, relative to their spread: [T, V] twice. Constants do not count."""
    a, b = (logits - logits.mean(axis=-1, keepdims=True) for logits in (found, expected))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))

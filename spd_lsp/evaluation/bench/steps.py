"""How long one pass takes for B requests, beside the time to read its weights and keys and values from memory.

Dimensions: B requests, each a row of the pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from spd_lsp.models.base import SCORED_CHUNK, Engine, ForwardInput
from spd_lsp.models.topk import TopKRequest
from spd_lsp.models.torch.engine import TorchEngine

_MIXED = 3  # tokens of a superposed position
_TOP_K = 20  # logits that decoding needs, and as many candidates of n-grams for each draft
_BANDWIDTH_BYTES = 1 << 30  # far more than caches hold; less on a CPU
_REPLAYS = 10  # between two looks at the clock, where the device alone is timed
_WARM_UP = 2


@dataclass(slots=True)
class StepTimes:
    """Seconds of a pass of B requests."""

    requests: int
    bytes: int  # that it must read
    all_logits: list[float]  # from the host's numbers to the host's logits
    top_logits: list[float] = field(default_factory=list)  # with the few logits that decoding needs
    device: list[float] = field(default_factory=list)  # without the host; empty unless the pass is captured


def time_steps(
    engine: Engine, network: Any, prompt: Sequence[int], weight_bytes: int, requests: Sequence[int], repeat: int
) -> tuple[dict[str, float], list[StepTimes]]:
    """Memory bandwidth by way of reading, bytes a second; and the passes of so many requests."""
    device = torch.device(engine.device)
    size = _BANDWIDTH_BYTES if device.type == "cuda" else _BANDWIDTH_BYTES >> 5
    bandwidth = measure_bandwidth(device, size, repeat)
    position = _position_bytes(network)
    times = []
    for rows in sorted(requests, reverse=True):  # the largest first, so that memory grows once
        step, positions = _step_of(engine, prompt, rows)
        one = StepTimes(rows, weight_bytes + positions * position, _timed(step, repeat, device))
        if isinstance(engine, TorchEngine):
            one.top_logits = _timed(_step_of(engine, prompt, rows, top_k=True)[0], repeat, device)
        if replay := _captured_step(engine, rows):
            with torch.inference_mode():
                several = _timed(partial(_repeat, replay), repeat, device)
            one.device = [seconds / _REPLAYS for seconds in several]
        times.append(one)
    return bandwidth, times[::-1]


def _repeat(replay: Callable[[], object]) -> None:
    for _ in range(_REPLAYS):
        replay()


def measure_bandwidth(device: torch.device, size: int, repeat: int) -> dict[str, float]:
    """Bytes a second of the fastest of some runs, by ways to read so many bytes."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    wide = torch.ones((size // dtype.itemsize // 4096, 4096), dtype=dtype, device=device)
    vector, other = torch.ones(4096, dtype=dtype, device=device), torch.empty_like(wide)
    reads: dict[str, tuple[Callable[[], object], int]] = {
        "sum": (lambda: wide.sum(), size),
        "matrix by vector": (lambda: torch.mv(wide, vector), size),
        "copy, both ways": (lambda: other.copy_(wide), 2 * size),
    }
    return {name: moved / min(_timed(read, repeat, device)) for name, (read, moved) in reads.items()}


def _timed(work: Callable[[], object], repeat: int, device: torch.device) -> list[float]:
    """Seconds of each run after the warm-up, with an idle device at both ends."""
    seconds = []
    for _ in range(_WARM_UP + repeat):
        _synchronise(device)
        began = time.perf_counter()
        work()
        _synchronise(device)
        seconds.append(time.perf_counter() - began)
    return seconds[_WARM_UP:]


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _step_of(
    engine: Engine, prompt: Sequence[int], rows: int, top_k: bool = False
) -> tuple[Callable[[], object], int]:
    """A repeatable pass with a superposed position in each row, and the positions in the cache of all rows."""
    lengths = [max(1, len(prompt) - 3 * number) for number in range(rows)]  # each at a position of its own
    whole = engine.new_cache()
    for start in range(0, len(prompt), SCORED_CHUNK):
        engine.forward_ids([prompt[start : start + SCORED_CHUNK]], whole, last_only=True)
    texts = [whole.fork(length) for length in lengths]
    mixture = (prompt[:_MIXED], np.full(_MIXED, 1 / _MIXED))
    request = TopKRequest(_TOP_K, [np.arange(_MIXED * _TOP_K)]) if top_k else None

    def step() -> None:
        for text, length in zip(texts, lengths, strict=True):
            text.crop(length)
        engine.forward_batch([ForwardInput(text, [mixture], top_k=request) for text in texts])

    return step, sum(lengths)


def _captured_step(engine: Any, rows: int) -> Callable[[], object] | None:
    """The CUDA graph of a pass of so many rows that was captured last."""
    graphs = [
        replay
        for shape, (_, replay) in getattr(engine, "graphs", {}).items()
        if shape.length == 1 and shape.rows == rows and not shape.extra
    ]
    return graphs[-1] if graphs else None


def _position_bytes(network: Any) -> int:
    """Bytes of keys and values of one position in all layers."""
    config = network.config.get_text_config()
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * config.num_key_value_heads * width * network.dtype.itemsize)

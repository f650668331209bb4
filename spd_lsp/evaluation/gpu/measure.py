"""How long passes, drafts and requests take, and how fast this device reads memory, all in one run.

Comes in: a subject. Goes out: seconds, and bytes a second. Draws no conclusions.

Legend: B requests read in one pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch

from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.bench.arms import HISTORY, Contest, forget, never, run
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.gpu.subject import Subject
from spd_lsp.models.base import PREFILL_CHUNK, Engine, ForwardInput
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.models.topk import TopKRequest
from spd_lsp.models.torch.engine import BATCH_SIZES, TorchEngine
from spd_lsp.settings import Settings

_DRAFTS = 3
_LIKELIEST = 20  # tokens that a step looks at, and as many for each draft that n-grams propose
_TYPED = 5  # tokens between two requests of an editor
_HOST = "superposed, the host choosing"  # whatever the engine found to be quicker
# Drafts of one request: one row, or three; and by transformers
ARMS = ("greedy", "superposed", _HOST, "nucleus", "beam", "transformers greedy", "transformers nucleus")
THREE_ROWS = ("branches", "nucleus")  # sampling costs the host more than following the likeliest
SERVED = ("superposed", *THREE_ROWS, "greedy")
_LARGE = 1 << 30  # bytes read to find the bandwidth, far more than caches hold
_IN_A_ROW = 10  # passes between two looks at the clock, where the device alone is timed


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure."""

    shape: str
    device: str = "auto"
    context: int = 512  # tokens of the prompts
    tokens: int = 16  # of each draft
    repeat: int = 15
    rows: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    editors: tuple[int, ...] = (1, 8, 32)
    requests: int = 6  # of each editor
    compiled: bool = False


def longest(asked: Asked) -> int:
    """Tokens of the prompt of the last editor's last request."""
    return asked.context + _TYPED * asked.requests + max(asked.editors)


@dataclass(slots=True)
class Steps:
    """A step of B requests."""

    rows: int
    whole: list[float] = field(default_factory=list)  # seconds, from the host's numbers to the host's logits
    device: list[float] = field(default_factory=list)  # the device alone; empty where nothing is captured
    few: list[float] = field(default_factory=list)  # whole, but for the few logits that choosing needs
    bytes: int = 0  # that it must read


@dataclass(slots=True)
class Served:
    """Editors that ask again and again, each as soon as it is answered."""

    decoder: str
    editors: int
    seconds: float  # for all requests
    taken: list[float]  # by each request
    together: float  # rows of seats a pass


@dataclass(slots=True)
class Found:
    """All that was measured."""

    asked: dict[str, Any]
    machine: dict[str, str]
    engine: str
    remarks: list[str]
    weights: int  # bytes
    bandwidth: dict[str, float] = field(default_factory=dict)  # bytes a second, by way of reading
    prefill: list[float] = field(default_factory=list)
    prefill_tokens: int = 0
    steps: list[Steps] = field(default_factory=list)
    reference_step: list[float] = field(default_factory=list)
    drafts: dict[str, list[float]] = field(default_factory=dict)  # seconds for one more token of all drafts
    served: list[Served] = field(default_factory=list)
    peak: int = 0  # bytes of the device's memory


def measure(subject: Subject, asked: Asked, found: Found, report: Callable[[str], None]) -> None:
    """Everything, in order of what one wants to know first."""
    device = subject.engine.device
    report("bandwidth")
    found.bandwidth = bandwidth(device, _LARGE if device.type == "cuda" else _LARGE >> 5, asked.repeat)
    report("prompts")
    prompt = list(subject.prompt[: asked.context])
    found.prefill_tokens = len(prompt)
    found.prefill = timed(lambda: _read_cold(subject.engine, prompt), asked.repeat, device)
    report("captures")
    _capture_all(subject.engine, prompt, max(*asked.rows, _DRAFTS * max(asked.editors)))
    for rows in asked.rows:
        report(f"steps of {rows}")
        found.steps.append(steps(subject, prompt, rows, asked.repeat))
    subject.reference.prefill(prompt)
    one = np.ones(1)
    found.reference_step = timed(lambda: subject.reference.step([7], one), asked.repeat, device)
    report("drafts")
    found.drafts = drafts(subject, asked)
    for editors in asked.editors:
        for decoder in SERVED:
            report(f"{editors} editors, {decoder}")
            found.served.append(serve(subject, asked, editors, decoder))
    if device.type == "cuda":
        found.peak = torch.cuda.max_memory_allocated(device)


def timed(work: Callable[[], object], repeat: int, device: torch.device) -> list[float]:
    """Seconds of each run; two more come first."""
    taken = []
    for number in range(repeat + 2):
        settle(device)
        started = time.perf_counter()
        work()
        settle(device)
        if number >= 2:
            taken.append(time.perf_counter() - started)
    return taken


def settle(device: torch.device) -> None:
    """Wait until the device has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bandwidth(device: torch.device, size: int, repeat: int) -> dict[str, float]:
    """Bytes a second by ways of reading so many bytes, at their fastest."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    wide = torch.ones((size // dtype.itemsize // 4096, 4096), dtype=dtype, device=device)
    vector, other = torch.ones(4096, dtype=dtype, device=device), torch.empty_like(wide)
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "sum": (lambda: wide.sum(), size),
        "matrix by vector": (lambda: torch.mv(wide, vector), size),
        "copy, both ways": (lambda: other.copy_(wide), 2 * size),
    }
    return {name: moved / min(timed(work, repeat, device)) for name, (work, moved) in ways.items()}


def _read_cold(engine: Engine, prompt: Sequence[int]) -> None:
    """Read a prompt of which nothing is known."""
    forget(engine)
    engine.prefill(prompt)


def steps(subject: Subject, prompt: Sequence[int], rows: int, repeat: int) -> Steps:
    """A step of so many requests, each at a position of its own: the mixture of three tokens in each."""
    engine = subject.engine
    one, lengths = _step_of(engine, prompt, rows)
    moved = subject.weights + sum(lengths) * subject.keys_values
    found = Steps(rows, timed(one, repeat, engine.device), bytes=moved)
    if isinstance(engine, TorchEngine):
        found.few = timed(_step_of(engine, prompt, rows, few=True)[0], repeat, engine.device)
    if replay := captured(engine, rows):
        with torch.inference_mode():
            several = timed(lambda: [replay() for _ in range(_IN_A_ROW)], repeat, engine.device)
        found.device = [seconds / _IN_A_ROW for seconds in several]
    return found


def _step_of(
    engine: Engine, prompt: Sequence[int], rows: int, few: bool = False
) -> tuple[Callable[[], object], list[int]]:
    """The same step again and again, and how long the prompts are that it follows."""
    lengths = [max(1, len(prompt) - 3 * number) for number in range(rows)]
    whole = engine.new_cache()
    for start in range(0, len(prompt), PREFILL_CHUNK):
        engine.forward_ids([prompt[start : start + PREFILL_CHUNK]], whole, last_only=True)
    texts = [whole.fork(length) for length in lengths]
    mixture = (prompt[:_DRAFTS], np.full(_DRAFTS, 1 / _DRAFTS))
    top_k = TopKRequest(_LIKELIEST, [np.arange(_DRAFTS * _LIKELIEST)]) if few else None

    def one() -> None:
        for text, length in zip(texts, lengths, strict=True):
            text.crop(length)
        engine.forward_batch([ForwardInput(text, [mixture], top_k=top_k) for text in texts])

    return one, lengths


def _capture_all(engine: Engine, prompt: Sequence[int], most: int) -> None:
    """Have all steps captured that so many rows may need; the largest first, so that memory grows once."""
    for rows in sorted((rows for rows in BATCH_SIZES if rows < 2 * most), reverse=True):
        _step_of(engine, prompt, rows)[0]()
        if engine.selects_on_device:
            _step_of(engine, prompt, rows, few=True)[0]()


def captured(engine: Any, rows: int) -> Callable[[], object] | None:
    """The graph of a step of so many rows that was captured last."""
    graphs = [
        replay
        for shape, (_, replay) in getattr(engine, "graphs", {}).items()
        if shape.length == 1 and shape.rows == rows and not shape.extra
    ]
    return graphs[-1] if graphs else None


def drafts(subject: Subject, asked: Asked) -> dict[str, list[float]]:
    """Seconds for one more token of all drafts of one request, contender by contender in changing order."""
    contest = Contest(
        subject.engine,
        subject.reference.network,
        subject.prompt[: asked.context],
        asked.tokens,
        subject.interpolation,
    )
    taken: dict[str, list[float]] = {name: [] for name in ARMS}
    selects = subject.engine.selects_on_device
    for number in range(asked.repeat + 1):
        for name in Random(number).sample(ARMS, len(ARMS)):
            subject.engine.selects_on_device = selects and name != _HOST
            one = run("superposed" if name == _HOST else name, _DRAFTS, contest)
            if number:  # the first round warms up
                taken[name].append(one.rest.wall / (one.tokens - 1))
    subject.engine.selects_on_device = selects
    return taken


def serve(subject: Subject, asked: Asked, editors: int, decoder: str) -> Served:
    """Editors in threads of their own share the engine; each has its own text and types between two requests."""
    scheduler = BatchScheduler(subject.engine)
    seats = [scheduler.new_engine() for _ in range(editors)]

    def edit(number: int, requests: Sequence[int]) -> list[float]:
        text = subject.prompt[number:]
        taken = []
        for request in requests:
            started = time.perf_counter()
            prompt = [number, *text[: asked.context + _TYPED * request]]
            answer(seats[number], prompt, decoder, subject, asked.tokens)
            taken.append(time.perf_counter() - started)
        return taken

    with ThreadPoolExecutor(editors) as pool:
        list(pool.map(lambda number: edit(number, [0]), range(editors)))  # reads the prompts and warms up
        passes, rows, started = scheduler.batches, scheduler.inputs, time.perf_counter()
        taken = list(pool.map(lambda number: edit(number, range(1, asked.requests + 1)), range(editors)))
        seconds = time.perf_counter() - started
    together = (scheduler.inputs - rows) / max(1, scheduler.batches - passes)
    return Served(decoder, editors, seconds, [one for several in taken for one in several], together)


def answer(seat: Engine, prompt: Sequence[int], decoder: str, subject: Subject, tokens: int) -> None:
    """One request: superposed drafts with n-grams, others without."""
    ngrams = subject.interpolation if decoder == "superposed" else None
    start = DecodingRequest(prompt, never, prompt[-HISTORY:], ngrams)
    drafts = 1 if decoder == "greedy" else _DRAFTS
    DECODERS[decoder](seat, start, Settings(drafts=drafts, max_tokens=tokens), lambda: None)

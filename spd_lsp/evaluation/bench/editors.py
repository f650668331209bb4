"""Editors that share one engine: how many completions it writes when so many send requests at once.

Each editor sends a request as soon as it has its answer, after five more typed tokens of a text of its own.
Waiting requests share a pass: one row for superposed drafts, one for each draft of the other decoders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.bench.clocks import Clocks, now
from spd_lsp.evaluation.bench.contenders import HISTORY, BenchSetup, never_stop
from spd_lsp.evaluation.bench.prefixes import TYPED_TOKENS
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.progress import ReportProgress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.models.base import Engine

Key = tuple[str, int]  # a decoder's name and the number of editors

SHARED_DECODERS = ("superposed", "greedy", "branches", "nucleus", "beam")
DRAFTS = 3  # of each completion; one of `greedy`
_REQUESTS = 4  # of each editor in a round


@dataclass(frozen=True, slots=True)
class SharedRound:
    """One round of so many editors."""

    completions: int
    time: Clocks
    requests_per_pass: float


def time_editors(
    setup: BenchSetup, editors: Sequence[int], repeat: int, report: ReportProgress
) -> dict[Key, list[SharedRound]]:
    """Let editors send requests, round by round in changing order; every decoder has the same n-grams."""
    assert setup.model is not None
    scheduler = BatchScheduler(setup.model)
    seats = [scheduler.new_engine() for _ in range(max(editors))]
    keys = [(name, count) for count in editors for name in SHARED_DECODERS]
    rounds: dict[Key, list[SharedRound]] = {key: [] for key in keys}
    done = 0
    for number in range(repeat + 1):
        for name, count in Random(number).sample(keys, len(keys)):
            measured = _run_round(scheduler, seats[:count], name, setup, number)
            if number:  # the first round reads the prompts and warms up
                rounds[name, count].append(measured)
            done += 1
            report("editors", done, len(keys) * (repeat + 1))
    return rounds


def _run_round(
    scheduler: BatchScheduler, seats: Sequence[Engine], name: str, setup: BenchSetup, number: int
) -> SharedRound:
    """All editors at once, each in a thread of its own."""

    def edit(editor: int) -> None:
        for prompt in typed_prompts(setup.prompt, editor, number):
            _complete(seats[editor], prompt, name, setup)

    passes, rows, began = scheduler.batches, scheduler.inputs, now()
    with ThreadPoolExecutor(len(seats)) as pool:
        list(pool.map(edit, range(len(seats))))
    time = now() - began
    return SharedRound(
        len(seats) * _REQUESTS, time, (scheduler.inputs - rows) / max(1, scheduler.batches - passes)
    )


def typed_prompts(ids: Sequence[int], editor: int, number: int) -> Iterator[list[int]]:
    """The prompts of an editor in a round: each begins with the editor's text, and grows as it is typed."""
    typed = _REQUESTS * TYPED_TOKENS
    text = [*ids[editor + 1 : -typed], *ids[: editor + 1]]
    new = [ids[(7 * number + place) % len(ids)] for place in range(typed)]
    for request in range(1, _REQUESTS + 1):
        yield text + new[: request * TYPED_TOKENS]


def _complete(seat: Engine, prompt: list[int], name: str, setup: BenchSetup) -> None:
    start = DecodingRequest(prompt, never_stop, prompt[-HISTORY:], setup.interpolation)
    settings = Settings(drafts=1 if name == "greedy" else DRAFTS, max_tokens=setup.tokens)
    DECODERS[name](seat, start, settings, lambda: None)

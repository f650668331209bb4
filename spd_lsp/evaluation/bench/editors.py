"""Editors that share one engine: how many completions it writes when so many ask at once.

Each editor asks as soon as it is answered, after five more typed tokens of a text of its own. What waits is read
together: one row of a pass for superposed drafts, one for each draft of the other decoders.

Comes in: an engine and a prompt. Goes out: rounds by decoder and number of editors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.bench.arms import HISTORY, Contest, never
from spd_lsp.evaluation.bench.moments import Moment, now
from spd_lsp.evaluation.bench.prefixes import TYPED
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.models.base import Engine


Key = tuple[str, int]  # a decoder's name and how many editors ask
Report = Callable[[str, int, int], None]

ASKING = ("superposed", "greedy", "branches", "nucleus", "beam")
DRAFTS = 3  # of each completion; one of `greedy`
REQUESTS = 4  # of each editor in a round


@dataclass(frozen=True, slots=True)
class Served:
    """One round of so many editors."""

    completions: int
    taken: Moment
    together: float  # requests in a pass


def serve(contest: Contest, editors: Sequence[int], repeat: int, report: Report) -> dict[Key, list[Served]]:
    """Let editors ask, round by round in changing order; every decoder asks the same n-grams."""
    assert contest.model is not None
    scheduler = BatchScheduler(contest.model)
    seats = [scheduler.new_engine() for _ in range(max(editors))]
    keys = [(name, count) for count in editors for name in ASKING]
    found: dict[Key, list[Served]] = {key: [] for key in keys}
    done = 0
    for number in range(repeat + 1):
        for name, count in Random(number).sample(keys, len(keys)):
            one = ask(scheduler, seats[:count], name, contest, number)
            if number:  # the first round reads the prompts and warms up
                found[name, count].append(one)
            done += 1
            report("editors", done, len(keys) * (repeat + 1))
    return found


def ask(scheduler: BatchScheduler, seats: Sequence[Engine], name: str, contest: Contest, number: int) -> Served:
    """All editors ask at once, each in a thread of its own."""

    def edit(place: int) -> None:
        for prompt in typing(contest.prompt, place, number):
            answer(seats[place], prompt, name, contest)

    passes, rows, began = scheduler.batches, scheduler.inputs, now()
    with ThreadPoolExecutor(len(seats)) as pool:
        list(pool.map(edit, range(len(seats))))
    taken = now() - began
    return Served(len(seats) * REQUESTS, taken, (scheduler.inputs - rows) / max(1, scheduler.batches - passes))


def typing(ids: Sequence[int], editor: int, number: int) -> Iterator[list[int]]:
    """The prompts of an editor in a round: a text that begins as it always does, and what is typed now."""
    typed = REQUESTS * TYPED
    text = [*ids[editor + 1 : -typed], *ids[: editor + 1]]
    new = [ids[(7 * number + place) % len(ids)] for place in range(typed)]
    for request in range(1, REQUESTS + 1):
        yield text + new[: request * TYPED]


def answer(seat: Engine, prompt: list[int], name: str, contest: Contest) -> None:
    """One completion."""
    start = DecodingRequest(prompt, never, prompt[-HISTORY:], contest.interpolation)
    settings = Settings(drafts=1 if name == "greedy" else DRAFTS, max_tokens=contest.tokens)
    DECODERS[name](seat, start, settings, lambda: None)

"""An engine that goes on elsewhere when its memory runs out: the request at hand loses time and nothing else.

Comes in: an engine, and how to open the one to go on with. Goes out: the same calls. What a request has read since
its prompt is read once more there. Knows neither devices nor tensors.

Legend: V vocabulary, N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.base import Pass, Runner, Slot
from spd_lsp.models.topk import Likeliest, Mixture

Answer = TypeVar("Answer")


class Retreating(Runner):
    """Hands on every call; after `trouble` it opens the other engine, once, and repeats there what led to it."""

    def __init__(
        self, engine: Runner, trouble: type[Exception], reopen: Callable[[], Runner], report: Callable[[str], None]
    ) -> None:
        self.engine = engine
        self.trouble = trouble
        self.reopen: Callable[[], Runner] | None = reopen
        self.report = report
        self.since: list[Callable[[Runner], Any]] = []  # calls from the last prefill on

    @property
    def max_positions(self) -> int:  # type: ignore[override]  # as of now
        """As in `Runner`."""
        return self.engine.max_positions

    @property
    def device(self) -> Any:  # as of now
        """As in `Runner`."""
        return self.engine.device

    @property
    def selects(self) -> bool:  # type: ignore[override]  # as of now
        """As in `Runner`."""
        return self.engine.selects

    @property
    def slots(self) -> list[Slot]:  # type: ignore[override]  # those of the engine
        """As in `Runner`."""
        return self.engine.slots

    def attempt(self, call: Callable[[Runner], Answer]) -> Answer:
        """Make a call, and make it elsewhere if memory runs out."""
        try:
            found = call(self.engine)
        except self.trouble:
            if self.reopen is None:
                raise
            self.report(f"{self.device} ran out of memory; going on elsewhere, more slowly")
            self.engine, self.reopen = self.reopen(), None
            for before in self.since:
                before(self.engine)
            found = call(self.engine)
        self.since.append(call)
        return found

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """As in `Runner`."""
        self.since = []
        return self.attempt(lambda engine: engine.prefill(ids, check))

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """As in `Runner`."""
        return self.attempt(lambda engine: engine.step(ids, weights))

    def step_likeliest(
        self, ids: Sequence[int], weights: Floats, count: int, asked: Ids, temperature: float = 1.0
    ) -> Likeliest:
        """As in `Runner`."""
        return self.attempt(lambda engine: engine.step_likeliest(ids, weights, count, asked, temperature))

    def step_rows(self, rows: Sequence[Mixture], parents: Sequence[int]) -> Floats:
        """As in `Runner`."""
        return self.attempt(lambda engine: engine.step_rows(rows, parents))

    def read_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """As in `Runner`."""
        return self.attempt(lambda engine: engine.read_drafts(drafts))

    def likelihoods(self, ids: Sequence[int]) -> Floats:
        """As in `Runner`."""
        found = self.attempt(lambda engine: engine.likelihoods(ids))
        self.since.pop()  # nothing follows from it
        return found

    def crop(self, length: int) -> None:
        """As in `Runner`."""
        self.attempt(lambda engine: engine.crop(length))

    def empty(self) -> Any:
        """As in `Runner`. This and what follows is for those who keep caches themselves: it does not retreat."""
        return self.engine.empty()

    def superpose(self, rows: Sequence[Mixture]) -> Any:
        """As in `Runner`."""
        return self.engine.superpose(rows)

    def forward(self, embedded: Any, cache: Any) -> Floats:
        """As in `Runner`."""
        return self.engine.forward(embedded, cache)

    def read(self, ids: Sequence[Sequence[int]], cache: Any, *, last: bool = False) -> Floats:
        """As in `Runner`."""
        return self.engine.read(ids, cache, last=last)

    def together(self, passes: Sequence[Pass]) -> list[Floats]:
        """As in `Runner`."""
        return self.engine.together(passes)

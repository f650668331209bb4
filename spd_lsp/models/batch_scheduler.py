"""One engine for several requests at once: their passes are read as one.

Each request has a seat, an engine of its own with its own prompts in memory, and runs in its own thread. A seat's
passes are handed to the one thread that computes; what is waiting there is read together. So requests join and
leave between two passes, and k drafts still cost one row, not k.

Comes in: passes of seats. Goes out: their logits. Knows nothing of drafts, or of how a pass is computed.

Legend: B passes read together, N rows of one of them, T positions, D width, V vocabulary.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Pass, Runner
from spd_lsp.models.oom_fallback import Retreating
from spd_lsp.models.topk import Mixture

_MOST = 32  # seats read together
_LONGEST_WAIT = 0.02  # seconds for those who are choosing their next tokens


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A pass that a seat waits for."""

    seat: Seat
    wanted: Pass
    found: Future[Floats] = field(default_factory=Future)


class Seat(Runner):
    """One request's engine: what it reads is read by an engine that others share."""

    def __init__(self, shared: SharedEngine) -> None:
        self.shared = shared
        self.max_positions = shared.engine.max_positions
        self.device = shared.engine.device
        super().__init__()

    @property
    def selects(self) -> bool:  # type: ignore[override]  # as the shared one does
        """As in `Runner`."""
        return self.shared.engine.selects

    def empty(self) -> Any:
        """As in `Runner`."""
        return self.shared.engine.empty()

    def superpose(self, rows: Sequence[Mixture]) -> Any:
        """As in `Runner`; done at once, as it is no pass."""
        return self.shared.engine.superpose(rows)

    def forward(self, embedded: Any, cache: Any) -> Floats:
        """As in `Runner`."""
        return self.shared.read(self, Pass(cache, embedded=embedded))

    def read(self, ids: Sequence[Sequence[int]], cache: Any, *, last: bool = False) -> Floats:
        """As in `Runner`."""
        return self.shared.read(self, Pass(cache, ids=ids, last=last))


class SharedEngine:
    """The thread that computes, and what waits for it."""

    def __init__(self, engine: Runner) -> None:
        self.engine = engine
        self.changed = threading.Condition()
        self.moving = threading.Lock()
        self.elsewhere: SharedEngine | None = None
        self.waiting: list[Request] = []
        self.expected: set[Seat] = set()  # who was in the last pass, and is likely to come back
        self.patience = 0.0  # seconds: what the last pass took
        self.passes = 0
        self.rows = 0  # passes of seats; divided by `passes`, how many were read together
        threading.Thread(target=self.work, name="engine", daemon=True).start()

    def seat(self) -> Runner:
        """An engine for one request at a time; one that runs out of memory leaves the others where they are."""
        if not isinstance(self.engine, Retreating):
            return Seat(self)
        return Retreating(Seat(self), self.engine.trouble, self.seat_elsewhere, self.engine.report)

    def seat_elsewhere(self) -> Runner:
        """A seat at the engine that those share who ran out of memory here."""
        assert isinstance(self.engine, Retreating)
        with self.moving:
            if self.elsewhere is None:
                assert self.engine.reopen is not None
                self.elsewhere = SharedEngine(self.engine.reopen())
            return self.elsewhere.seat()

    def read(self, seat: Seat, wanted: Pass) -> Floats:
        """Have a seat's pass read with those of others; what goes wrong with it is raised here."""
        request = Request(seat, wanted)
        with self.changed:
            self.waiting.append(request)
            self.changed.notify_all()
        return request.found.result()

    def work(self) -> None:
        """Read what waits, for ever."""
        while True:
            requests = self.take()
            started = time.perf_counter()
            self.answer(requests)
            self.patience = min(_LONGEST_WAIT, time.perf_counter() - started)
            self.passes += 1
            self.rows += len(requests)

    def take(self) -> list[Request]:
        """What to read next: what waits, and what those of the last time will want as soon as they have chosen."""
        with self.changed:
            while not self.waiting:
                self.changed.wait()
            late = time.perf_counter() + self.patience
            while self.missing() and (left := late - time.perf_counter()) > 0:
                self.changed.wait(left)
            requests, self.waiting = self.waiting[:_MOST], self.waiting[_MOST:]
            self.expected = {request.seat for request in requests}
        return requests

    def missing(self) -> bool:
        """Whether someone who was in the last pass is not back."""
        return len(self.waiting) < _MOST and not self.expected <= {request.seat for request in self.waiting}

    def answer(self, requests: Sequence[Request]) -> None:
        """Read and tell each its logits; if that fails, one by one, so that each is told its own fault."""
        try:
            found = self.engine.together([request.wanted for request in requests])
        except Exception:
            for request in requests:
                self.answer_alone(request)
            return
        for request, logits in zip(requests, found, strict=True):
            request.found.set_result(logits)

    def answer_alone(self, request: Request) -> None:
        """Read one pass, or tell what went wrong with it."""
        try:
            request.found.set_result(self.engine.together([request.wanted])[0])
        except Exception as error:
            request.found.set_exception(error)

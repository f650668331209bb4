"""Continuous batching: the forward passes of several requests are computed as one.

Each request has an engine of its own, with its own cached prompts, and runs in its own thread. Its passes are
queued for the one thread that computes, which reads all queued ones together. So requests join and leave between
two passes. Knows nothing of drafts, or of how a pass is computed.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine, ForwardInput

_MAX_PROMPTS = 8  # that all sessions keep cached; at least one each
_MAX_WAIT = 0.02  # seconds for requests that are choosing their next tokens


class _Queued(NamedTuple):
    """A forward input, and the logits that a request waits for."""

    engine: BatchedEngine
    input: ForwardInput
    logits: Future[Floats]


class BatchedEngine(Engine):
    """One request's engine, which computes on the engine that the scheduler shares."""

    def __init__(self, scheduler: BatchScheduler) -> None:
        self.scheduler = scheduler
        shared = scheduler.engine
        self.max_positions = shared.max_positions
        self.device = shared.device
        self.keeps_positions = shared.keeps_positions
        self.predicts = shared.predicts
        self.chunk = shared.chunk
        self.end_of_text = getattr(shared, "end_of_text", None)
        super().__init__()

    @property
    def most_prompts(self) -> int:  # type: ignore[override]
        """As in `Engine`; all sessions together keep a limited number, too."""
        return max(1, min(self.scheduler.engine.most_prompts, _MAX_PROMPTS // len(self.scheduler.engines)))

    def new_cache(self) -> Any:
        """As in `Engine`."""
        return self.scheduler.engine.new_cache()

    def limit_threads(self, count: int) -> None:
        """As in `Engine`; all sessions have the same limit."""
        self.scheduler.engine.limit_threads(count)

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`; other requests' inputs may be read in the same pass."""
        queued = [_Queued(self, each, Future()) for each in inputs]
        with self.scheduler.changed:
            self.scheduler.queue += queued
            self.scheduler.changed.notify_all()
        return [one.logits.result() for one in queued]


class BatchScheduler:
    """The thread that computes, and its queue."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.engines: weakref.WeakSet[BatchedEngine] = weakref.WeakSet()
        self.changed = threading.Condition()
        self.queue: list[_Queued] = []
        self.expected: set[BatchedEngine] = set()  # in the last batch, and likely to be back soon
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def new_engine(self) -> BatchedEngine:
        """Return an engine for one request at a time."""
        engine = BatchedEngine(self)
        self.engines.add(engine)
        return engine

    def _run(self) -> None:
        wait_seconds = 0.0  # for expected engines: the duration of the last pass
        while True:
            # 1. Take the queue, once the requests of the last batch are back or had their time.
            with self.changed:
                self.changed.wait_for(lambda: self.queue)
                self.changed.wait_for(lambda: self.expected <= {one.engine for one in self.queue}, wait_seconds)
                batch, self.queue = self.queue, []
            self.expected = {one.engine for one in batch}
            # 2. Compute it.
            self.engine.threads.look_around()
            started = time.perf_counter()
            self._compute(batch)
            wait_seconds = min(_MAX_WAIT, time.perf_counter() - started)

    def _compute(self, batch: Sequence[_Queued]) -> None:
        """Compute a batch; if that fails, one by one, so that each request gets its own error."""
        try:
            for one, logits in zip(batch, self.engine.forward_batch([one.input for one in batch]), strict=True):
                one.logits.set_result(logits)
        except Exception as error:
            if len(batch) == 1:
                batch[0].logits.set_exception(error)
            else:
                for one in batch:
                    self._compute([one])

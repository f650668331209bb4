"""Continuous batching: the forward passes of several requests are computed as one.

Each request has an engine of its own, with its own cached prompts, and runs in its own thread. Its passes are
queued for the one thread that computes; whatever waits there is read together. So requests join and leave between
two passes, and k drafts still cost one row, not k. Knows nothing of drafts, or of how a pass is computed.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from spd_lsp.models.base import Engine, ForwardInput

_MAX_BATCH = 32  # forward inputs
_MAX_PROMPTS = 8  # that all sessions keep cached; at least one each
_MAX_WAIT = 0.02  # seconds for requests that are choosing their next tokens


@dataclass(frozen=True, slots=True, eq=False)
class QueuedInput:
    """A forward input whose logits a request waits for."""

    engine: BatchedEngine
    input: ForwardInput
    logits: Future[Any] = field(default_factory=Future)


class BatchedEngine(Engine):
    """One request's engine, which computes on the engine that the scheduler shares."""

    def __init__(self, scheduler: BatchScheduler) -> None:
        self.scheduler = scheduler
        self.max_positions = scheduler.engine.max_positions
        self.device = scheduler.engine.device
        self.forks_are_free = scheduler.engine.forks_are_free
        self.keeps_positions = scheduler.engine.keeps_positions
        self.predicts = scheduler.engine.predicts
        self.chunk = scheduler.engine.chunk
        self.end_of_text = getattr(scheduler.engine, "end_of_text", None)
        super().__init__()

    @property
    def most_prompts(self) -> int:  # type: ignore[override]
        """As in `Engine`; what all sessions keep together is bounded, too."""
        return max(1, min(self.scheduler.engine.most_prompts, _MAX_PROMPTS // len(self.scheduler.engines)))

    def new_cache(self) -> Any:
        """As in `Engine`."""
        return self.scheduler.engine.new_cache()

    def limit_threads(self, count: int) -> None:
        """As in `Engine`; all sessions have the same bound."""
        self.scheduler.engine.limit_threads(count)

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Any]:
        """As in `Engine`; other requests' inputs may be read in the same pass."""
        queued = [QueuedInput(self, each) for each in inputs]
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
        self.queue: list[QueuedInput] = []
        self.expected: set[BatchedEngine] = set()  # in the last batch, and likely to be back soon
        self.wait_seconds = 0.0  # for those: what the last pass took
        self.batches = 0
        self.inputs = 0  # divided by `batches`, the mean batch size
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def new_engine(self) -> BatchedEngine:
        """An engine for one request at a time."""
        engine = BatchedEngine(self)
        self.engines.add(engine)
        return engine

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            self.engine.threads.look_around()
            started = time.perf_counter()
            self._compute(batch)
            self.wait_seconds = min(_MAX_WAIT, time.perf_counter() - started)
            self.batches += 1
            self.inputs += len(batch)

    def _next_batch(self) -> list[QueuedInput]:
        """What is queued, once the requests of the last batch are back or had their time."""
        with self.changed:
            while not self.queue:
                self.changed.wait()
            deadline = time.perf_counter() + self.wait_seconds
            while (left := deadline - time.perf_counter()) > 0:
                if len(self.queue) >= _MAX_BATCH or self.expected <= {queued.engine for queued in self.queue}:
                    break
                self.changed.wait(left)
            batch = self.queue[:_MAX_BATCH]
            self.queue = self.queue[_MAX_BATCH:]
            self.expected = {queued.engine for queued in batch}
        return batch

    def _compute(self, batch: Sequence[QueuedInput]) -> None:
        """Compute a batch; if that fails, one by one, so that each request gets its own error."""
        try:
            for queued, logits in zip(batch, self.engine.forward_batch([one.input for one in batch]), strict=True):
                queued.logits.set_result(logits)
        except Exception as error:
            if len(batch) == 1:
                batch[0].logits.set_exception(error)
            else:
                for queued in batch:
                    self._compute([queued])

"""At most one computation per document: equal requests share it while it runs, a newer request cancels it.

In: a document's URI, a request (anything that compares) and blocking work that polls `check`. Out: the work's
result, or `Cancelled` with the reason. Knows nothing of LSP or completions.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")
Check = Callable[[], None]
Work = Callable[[Check], Result]


class CancelReason(enum.Enum):
    """Why a computation was cancelled."""

    CLIENT = "the editor cancelled the request"
    SUPERSEDED = "a newer request replaced it"
    SHUTDOWN = "the server is shutting down"


class Cancelled(Exception):
    """Raised by `CancellationToken.check` inside the work, and by `RequestScheduler.run` to its callers."""

    def __init__(self, reason: CancelReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class CancellationToken:
    """Set on the event loop, polled in the worker thread."""

    def __init__(self) -> None:
        self.reason: CancelReason | None = None

    def cancel(self, reason: CancelReason) -> None:
        """Ask the work to stop; the first reason stays."""
        self.reason = self.reason or reason

    def check(self) -> None:
        """Raise Cancelled after `cancel`. Cheap enough to call for every token."""
        if self.reason is not None:
            raise Cancelled(self.reason)


class _Job(Generic[Request, Result]):
    """One computation and the number of callers that wait for it."""

    def __init__(self, request: Request, cancel: CancellationToken, task: asyncio.Task[Result]) -> None:
        self.request = request
        self.cancel = cancel
        self.task = task
        self.waiting = 0

    def answers(self, request: Request) -> bool:
        """Whether it runs for an equal request."""
        return self.cancel.reason is None and not self.task.done() and self.request == request

    def stop(self, reason: CancelReason) -> None:
        """Cancel it: at once for its callers, within one step in the worker."""
        if not self.task.done():
            self.cancel.cancel(reason)
            self.task.cancel()


class RequestScheduler(Generic[Request, Result]):
    """The newest request of each document. For use on one event loop."""

    def __init__(self, worker: Executor) -> None:
        self._worker = worker
        self._jobs: dict[str, _Job[Request, Result]] = {}

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits to run."""
        return any(not job.task.done() for job in self._jobs.values())

    def running(self, uri: str) -> Request | None:
        """The document's request whose result is not known yet."""
        job = self._jobs.get(uri)
        return None if job is None or job.task.done() else job.request

    async def run(self, uri: str, request: Request, work: Work[Result], *, delay: float = 0.0) -> Result:
        """Run `work(check)` in the worker, or share the run of an equal request; a newer request cancels it.

        delay: seconds to wait before the work starts, during which a newer request replaces it for free.
        """
        job = self._jobs.get(uri)
        if job is None or not job.answers(request):
            self.drop(uri, CancelReason.SUPERSEDED)
            cancel = CancellationToken()
            job = _Job(request, cancel, asyncio.ensure_future(self._run(work, cancel, delay)))
            self._jobs[uri] = job
        job.waiting += 1
        try:
            return await asyncio.shield(job.task)
        except asyncio.CancelledError:
            if job.cancel.reason is None:
                raise  # this caller was cancelled, not the work
            raise Cancelled(job.cancel.reason) from None
        finally:
            job.waiting -= 1
            if not job.waiting:
                job.stop(CancelReason.CLIENT)

    def drop(self, uri: str, reason: CancelReason) -> None:
        """Cancel what runs for a document."""
        if (job := self._jobs.pop(uri, None)) is not None:
            job.stop(reason)

    def drop_all(self, reason: CancelReason) -> None:
        """Cancel everything."""
        for uri in list(self._jobs):
            self.drop(uri, reason)

    async def _run(self, work: Work[Result], cancel: CancellationToken, delay: float) -> Result:
        try:
            await asyncio.sleep(delay)
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, cancel.check)
        except asyncio.CancelledError:
            cancel.cancel(CancelReason.SHUTDOWN)  # the loop itself is ending, unless `stop` gave a reason
            raise

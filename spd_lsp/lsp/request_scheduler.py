"""At most one computation runs for a document, and none is thrown away while it may help.

In: requests that can be compared, and blocking work that polls a token. Out: results, which are kept whoever still
waits for them. A computation goes on while someone types along with its drafts so far, also when the editor has
given up its request; any other request stops it within one step. Knows nothing of models.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class CancelReason(enum.Enum):
    """Why a computation was cancelled, or why nobody waits for it any more."""

    CLIENT = "the editor cancelled the request"
    SUPERSEDED = "a newer request replaced it"
    REFUTED = "none of its drafts continues what was typed since"
    SHUTDOWN = "the server is shutting down"


class Cancelled(Exception):
    """Raised by `CancellationToken.check` inside the work, and by `RequestScheduler` to its callers."""

    def __init__(self, reason: CancelReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class CancellationToken:
    """Set on the event loop, polled in the worker thread."""

    def __init__(self) -> None:
        self.reason: CancelReason | None = None
        self.typed = ""  # at the cursor since the work began

    def cancel(self, reason: CancelReason) -> None:
        """Ask the work to stop; the first reason stays."""
        self.reason = self.reason or reason

    def check(self) -> None:
        """Raise Cancelled after `cancel`. Cheap enough to call for every token."""
        if self.reason is not None:
            raise Cancelled(self.reason)

    def check_typed(self, fits: Callable[[str], bool]) -> None:
        """Raise Cancelled if what was typed since does not fit what the work has found so far."""
        if self.typed and not fits(self.typed):
            raise Cancelled(CancelReason.REFUTED)


Work = Callable[[CancellationToken], Result]


class _Job(Generic[Request, Result]):
    """One computation, and those who wait for it."""

    task: asyncio.Task[Result]

    def __init__(self, request: Request) -> None:
        self.request = request
        self.token = CancellationToken()
        self.has_begun = False  # in the worker, so that stopping it wastes work
        self._callers: dict[asyncio.Future[CancelReason], Request] = {}  # and what each has asked for

    @property
    def is_running(self) -> bool:
        """Whether its result may still come."""
        return self.token.reason is None and not self.task.done()

    @property
    def is_awaited(self) -> bool:
        """Whether anyone waits for it."""
        return bool(self._callers)

    async def wait(self, request: Request) -> Result:
        """Its result for someone who has asked for `request`, until they are told to go."""
        told: asyncio.Future[CancelReason] = asyncio.get_running_loop().create_future()
        self._callers[told] = request
        try:
            ends: set[asyncio.Future[Any]] = {self.task, told}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._callers[told]
        if told.done():
            raise Cancelled(told.result())
        return self.result()

    def result(self) -> Result:
        """Its result, once it has ended."""
        if self.task.cancelled():
            raise Cancelled(self.token.reason or CancelReason.SHUTDOWN)
        return self.task.result()

    def release(self, reason: CancelReason, but: Request | None = None) -> None:
        """Tell callers to go, except those who have asked for `but`."""
        for told, request in self._callers.items():
            if not told.done() and (but is None or request != but):
                told.set_result(reason)

    def stop(self, reason: CancelReason) -> None:
        """Cancel it: at once for its callers, within one step in the worker."""
        if not self.task.done():
            self.token.cancel(reason)
            self.release(reason)
            self.task.cancel()


class RequestScheduler(Generic[Request, Result]):
    """The newest request of a person, who is in one document at a time. For use on one event loop."""

    def __init__(
        self,
        worker: Executor,
        typed_since: Callable[[Request, Request], str],
        keep: Callable[[Request, Result], Result],
    ) -> None:
        """`typed_since(earlier, later)`: what was typed between two requests, "" if they differ in more than that.

        keep: is given each result, also one that nobody waits for any more, and returns what callers get.
        """
        self._worker = worker
        self._typed_since = typed_since
        self._keep = keep
        self._jobs: dict[str, _Job[Request, Result]] = {}

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits to run."""
        return any(not job.task.done() for job in self._jobs.values())

    def running(self, uri: str) -> Request | None:
        """The document's request whose result is not known yet."""
        job = self._jobs.get(uri)
        return None if job is None or job.task.done() else job.request

    async def run(self, uri: str, request: Request, work: Work[Result]) -> Result:
        """Run `work(token)` in the worker, or share the run of an equal request; a newer request cancels it.

        Also one in another document, or a model that reads for seconds would first read for all that were left.
        """
        for other in self._jobs.keys() - {uri}:
            self.drop(other, CancelReason.SUPERSEDED)
        return await self._start(uri, request, work).wait(request)

    async def run_ahead(self, uri: str, request: Request, work: Work[Result]) -> Result:
        """As `run`, for a request that may follow; a request for any document cancels it, if it is another."""
        job = self._start(uri, request, work)
        await asyncio.wait({job.task})
        return job.result()

    def _start(self, uri: str, request: Request, work: Work[Result]) -> _Job[Request, Result]:
        job = self._jobs.get(uri)
        if job is None or not job.is_running or job.request != request:
            self.drop(uri, CancelReason.SUPERSEDED)
            self._drop_unawaited()
            job = self._jobs[uri] = _Job(request)
            job.task = asyncio.ensure_future(self._run(job, work))
            job.task.add_done_callback(_note_failure)
        return job

    async def finish_earlier(self, uri: str, request: Request) -> None:
        """Wait for a computation that this request continues, if there is one, as long as it may help.

        It may while its drafts so far go on with what was typed. Raises Cancelled once there is a newer request.
        """
        job = self._jobs.get(uri)
        if job is None or not (job.has_begun and job.is_running):
            return
        if not (typed := self._typed_since(job.request, request)):
            return
        job.release(CancelReason.SUPERSEDED, but=request)
        job.token.typed = typed
        try:
            await job.wait(request)
        except Cancelled as cancelled:
            if cancelled.reason is not CancelReason.REFUTED:
                raise
        except Exception:  # whoever asked for it was told
            pass

    def note_edit(self, uri: str, request: Request) -> None:
        """Stop a document's computation unless it may still help, given what would be asked for after an edit."""
        job = self._jobs.get(uri)
        if job is None or not job.is_running or job.request == request:
            return
        if typed := self._typed_since(job.request, request):
            job.token.typed = typed
        elif not self._typed_since(request, job.request):  # it is not what was expected either
            job.stop(CancelReason.SUPERSEDED)

    def drop(self, uri: str, reason: CancelReason) -> None:
        """Cancel what runs for a document."""
        if (job := self._jobs.pop(uri, None)) is not None:
            job.stop(reason)

    def drop_all(self, reason: CancelReason) -> None:
        """Cancel everything."""
        for uri in list(self._jobs):
            self.drop(uri, reason)

    def _drop_unawaited(self) -> None:
        """What nobody waits for must not keep those waiting who ask elsewhere."""
        for uri, job in list(self._jobs.items()):
            if not job.is_awaited:
                self.drop(uri, CancelReason.SUPERSEDED)

    async def _run(self, job: _Job[Request, Result], work: Work[Result]) -> Result:
        def begin() -> Result:
            job.has_begun = True
            return work(job.token)

        try:
            result = await asyncio.get_running_loop().run_in_executor(self._worker, begin)
        except asyncio.CancelledError:
            job.token.cancel(CancelReason.SHUTDOWN)  # the loop itself is ending, unless `stop` gave a reason
            raise
        return self._keep(job.request, result)


def _note_failure(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from reporting an error that nobody waited for."""
    if not task.cancelled():
        task.exception()

"""What a session's worker does between requests: it indexes in slices, and prepares the next likely answer.

In: a worker, edits and results. Out: an index that is up to date, and results kept for later requests. A request
waits for one slice, and stops what is prepared within one step, unless it asks for just that. Runs on the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from spd_lsp.completion.typed_along import CompletionRequest, RecentResults, after_accepting
from spd_lsp.lsp.completion_worker import CompletionWorker
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason, RequestScheduler
from spd_lsp.output.safe_logging import safe_traceback

if TYPE_CHECKING:
    from spd_lsp.completion.offer import CompletionResult

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_SLICE_SECONDS = 0.005  # longest that a request waits for the worker
_PAUSE_SECONDS = 0.003  # between two slices
LOOK_SECONDS = 1.0  # between two looks for work, where nobody says that there is some
PREFETCH_DELAY_SECONDS = 0.15  # editors that complete while typing ask sooner
AHEAD_DELAY_SECONDS = 0.15  # whoever types on does so sooner; reading a draft and accepting it takes longer
_MAX_AHEAD_SECONDS = 1.0  # a completion that takes longer is not computed for nothing


class IdleWorker:
    """One task on the event loop: works in slices until nothing is left to do, and looks for work now and then."""

    def __init__(self, worker: Executor, is_busy: Callable[[], bool], work: Callable[[float], bool]) -> None:
        self._worker = worker
        self._is_busy = is_busy
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()  # since the last slice began, which may have looked for work before

    def wake(self) -> None:
        """Look for work soon."""
        self._woken.set()
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """Start no more slices."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        more = False
        while True:
            if not more:  # other programs change files and tables, and not every editor says so
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), LOOK_SECONDS)
            await asyncio.sleep(_PAUSE_SECONDS)
            if self._is_busy():
                more = True
            else:
                self._woken.clear()
                more = await asyncio.get_running_loop().run_in_executor(self._worker, self._run_slice)

    def _run_slice(self) -> bool:
        """In the worker thread. Failures are logged and end the work until the next look."""
        try:
            return self._work(_SLICE_SECONDS)
        except Exception as error:
            log.error("idle work failed: %s", safe_traceback(error))
            return False


class Prefetcher:
    """Prepares the answer that is most likely asked for next, once typing pauses; at most one at a time."""

    def __init__(
        self,
        worker: CompletionWorker,
        requests: RequestScheduler[CompletionRequest, CompletionResult | None],
        recent: RecentResults,
        announce: Callable[[str], None] = lambda uri: None,
    ) -> None:
        """`announce` is called with a document's URI when a longer completion is ready at its cursor."""
        self._worker = worker
        self._requests = requests
        self._recent = recent
        self._announce = announce
        self._task: asyncio.Task[None] | None = None
        self._ahead_of: CompletionRequest | None = None  # what the task, if it runs, answers ahead of
        self._read_at: CompletionRequest | None = None  # where the prompt was read last, or is about to be

    def read_prompt(self, request: CompletionRequest) -> None:
        """Have the model read the prompt where someone edits or looks, unless that is done or being answered."""
        if request not in (self._read_at, self._requests.running(request.uri)):
            self._schedule(PREFETCH_DELAY_SECONDS, partial(self._read_prompt, request))
            self._read_at = request

    def complete_ahead(self, request: CompletionRequest, result: CompletionResult) -> None:
        """Write on the block that the best draft opens, and answer the request that follows if it is accepted."""
        if self._ahead_of == request and self._task and not self._task.done():
            return  # an editor that asks again must not begin it again
        if result.completions and result.seconds <= _MAX_AHEAD_SECONDS:
            self._schedule(AHEAD_DELAY_SECONDS, partial(self._complete, request, result))
            self._ahead_of = request
        self._read_at = request

    def stop(self, request: CompletionRequest | None = None) -> None:
        """Cancel what is scheduled or running, unless it answers this request."""
        if self._task is not None and not (request and self._requests.running(request.uri) == request):
            self._task.cancel()
            self._read_at = self._ahead_of = None

    def _schedule(self, delay: float, work: Callable[[], Awaitable[None]]) -> None:
        self.stop()
        self._task = asyncio.ensure_future(self._run(delay, work))

    async def _run(self, delay: float, work: Callable[[], Awaitable[None]]) -> None:
        """Failures are logged."""
        await asyncio.sleep(delay)
        if self._requests.busy:
            self._read_at = None
            return
        try:
            await work()
        except Cancelled:
            pass
        except Exception as error:
            log.error("prefetch failed: %s", safe_traceback(error))

    async def _read_prompt(self, request: CompletionRequest) -> None:
        cancel = CancellationToken()
        await self._in_worker(cancel, partial(self._worker.prefetch, request, cancel.check))

    async def _in_worker(self, cancel: CancellationToken, work: Callable[[], Result]) -> Result:
        """What the worker makes; it stops once nobody waits."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker.executor, work)
        finally:
            cancel.cancel(CancelReason.SUPERSEDED)

    async def _complete(self, request: CompletionRequest, result: CompletionResult) -> None:
        if result.opens_block:
            cancel = CancellationToken()
            work = partial(self._worker.write_block, request, result, cancel)
            longer = await self._in_worker(cancel, work)
            self._recent.add(request, longer)
            if longer.completions != result.completions:
                self._announce(request.uri)
            result = longer
        following = after_accepting(request, result.completions[0])
        if self._recent.find(following, self._worker.is_current) is None:
            ahead = partial(self._worker.complete_ahead, following, shown=request)
            await self._requests.run_ahead(following.uri, following, ahead)

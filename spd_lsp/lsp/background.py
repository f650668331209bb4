"""What the worker thread does between requests: index in slices, and prepare the answer to a likely request.

In: the work, and likely requests. Out: a prompt in the model's cache, or a result. A request waits for one slice,
and stops what is prepared within one step, unless it asks for just that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from spd_lsp.lsp.completion_worker import CompletionWorker
from spd_lsp.lsp.protocol import safe_traceback
from spd_lsp.lsp.request import CompletionRequest, RecentResults, after_accepting
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason, RequestScheduler

if TYPE_CHECKING:
    from spd_lsp.completion.completer import CompletionResult

log = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005  # longest that a request waits for the worker
_PAUSE_SECONDS = 0.01  # between two slices
PREFETCH_DELAY_SECONDS = 0.15  # editors that complete while typing ask sooner
AHEAD_DELAY_SECONDS = 0.15  # whoever types on does so sooner; reading a draft and accepting it takes longer
_MAX_AHEAD_SECONDS = 1.0  # a completion that takes longer is not computed for nothing


class IdleWorker:
    """One task on the event loop that ends when nothing is left to do; `wake` starts it again."""

    def __init__(self, worker: Executor, is_busy: Callable[[], bool], work: Callable[[float], bool]) -> None:
        self._worker = worker
        self._is_busy = is_busy
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._woken = False  # since the last slice began, which may have looked for work before

    def wake(self) -> None:
        """Look for work soon."""
        self._woken = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """Start no more slices."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        more = True
        while more or self._woken:
            await asyncio.sleep(_PAUSE_SECONDS)
            if not self._is_busy():
                self._woken = False
                more = await asyncio.get_running_loop().run_in_executor(self._worker, self._run_slice)

    def _run_slice(self) -> bool:
        """In the worker thread. Failures are logged and end the work until the next `wake`."""
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
    ) -> None:
        self._worker = worker
        self._requests = requests
        self._recent = recent
        self._task: asyncio.Task[None] | None = None

    def read_prompt(self, request: CompletionRequest) -> None:
        """Have the model read the prompt at an edit, unless that is what was expected and is being answered."""
        if self._requests.running(request.uri) != request:
            self._schedule(PREFETCH_DELAY_SECONDS, partial(self._read_prompt, request))

    def complete_ahead(self, request: CompletionRequest, result: CompletionResult) -> None:
        """Answer the request that follows if the best draft is accepted."""
        if result.completions and result.seconds <= _MAX_AHEAD_SECONDS:
            self._schedule(AHEAD_DELAY_SECONDS, partial(self._complete, request, result))

    def stop(self, request: CompletionRequest | None = None) -> None:
        """Cancel what is scheduled or running, unless it answers this request."""
        if self._task is not None and not (request and self._requests.running(request.uri) == request):
            self._task.cancel()

    def _schedule(self, delay: float, work: Callable[[], Awaitable[None]]) -> None:
        self.stop()
        self._task = asyncio.ensure_future(self._run(delay, work))

    async def _run(self, delay: float, work: Callable[[], Awaitable[None]]) -> None:
        """Failures are logged."""
        await asyncio.sleep(delay)
        if self._requests.busy:
            return
        try:
            await work()
        except Cancelled:
            pass
        except Exception as error:
            log.error("prefetch failed: %s", safe_traceback(error))

    async def _read_prompt(self, request: CompletionRequest) -> None:
        cancel = CancellationToken()
        work = partial(self._worker.prefetch, request, cancel.check)
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker.executor, work)
        finally:
            cancel.cancel(CancelReason.SUPERSEDED)

    async def _complete(self, request: CompletionRequest, result: CompletionResult) -> None:
        following = after_accepting(request, result.completions[0])
        if self._recent.find(following, self._worker.is_current) is None:
            work = partial(self._worker.complete_ahead, following, shown=(request, result))
            if ahead := await self._requests.run(following.uri, following, work):
                self._recent.add(following, ahead)

"""What the worker thread does between requests: index in slices, and prefetch the prompt of a likely request.

In: the work, and likely requests. Out: nothing. A request waits for one slice, and stops a prefetch between two
chunks of its prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from spd_lsp.lsp.protocol import safe_traceback
from spd_lsp.lsp.request import CompletionRequest
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason

log = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005  # longest that a request waits for the worker
_PAUSE_SECONDS = 0.01  # between two slices
PREFETCH_DELAY_SECONDS = 0.15  # editors that complete while typing ask sooner


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
    """At most one prompt at a time: the one at the newest edit."""

    def __init__(
        self,
        worker: Executor,
        is_busy: Callable[[], bool],
        prefetch: Callable[[CompletionRequest, Callable[[], None]], None],
    ) -> None:
        self._worker = worker
        self._is_busy = is_busy
        self._prefetch = prefetch
        self._cancel = CancellationToken()
        self._task: asyncio.Task[None] | None = None

    def schedule(self, make_request: Callable[[], CompletionRequest]) -> None:
        """Prefetch for a request that is likely, unless another one or an edit comes first."""
        self.stop()
        self._cancel = CancellationToken()
        self._task = asyncio.ensure_future(self._run(make_request, self._cancel))

    def stop(self) -> None:
        """Cancel what is scheduled or running."""
        self._cancel.cancel(CancelReason.SUPERSEDED)
        if self._task is not None:
            self._task.cancel()

    async def _run(self, make_request: Callable[[], CompletionRequest], cancel: CancellationToken) -> None:
        await asyncio.sleep(PREFETCH_DELAY_SECONDS)
        if not self._is_busy():
            await asyncio.get_running_loop().run_in_executor(self._worker, self._try, make_request(), cancel)

    def _try(self, request: CompletionRequest, cancel: CancellationToken) -> None:
        """In the worker thread. Failures are logged."""
        try:
            cancel.check()
            self._prefetch(request, cancel.check)
        except Cancelled:
            pass
        except Exception as error:
            log.error("prefetch failed: %s", safe_traceback(error))

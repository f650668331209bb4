"""Background work in the worker thread, in short slices while no request is running.

In: the work, a function that runs for about so many seconds and returns whether more is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from spd_lsp.lsp.protocol import safe_traceback

log = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005  # longest that a request waits for the worker
_PAUSE_SECONDS = 0.01  # between two slices


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

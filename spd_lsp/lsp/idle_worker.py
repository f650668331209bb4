"""Work that no request waits for, done in the worker thread in small pieces while no request is there.

In: the work, which takes seconds and says whether more is left. Knows nothing of what it does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from spd_lsp.lsp.protocol import trail

log = logging.getLogger(__name__)

_SLICE = 0.005  # seconds that a request may find the worker busy
_PAUSE = 0.01  # seconds between two slices; work is put off while requests are answered


class Upkeep:
    """One task on the event loop, that sleeps while there is nothing to do."""

    def __init__(self, worker: Executor, busy: Callable[[], bool], work: Callable[[float], bool]) -> None:
        self.worker = worker
        self.busy = busy
        self.work = work
        self.running: asyncio.Task[None] | None = None
        self.nudged = False  # since the last slice began, which may have looked before

    def nudge(self) -> None:
        """There may be something to do."""
        self.nudged = True
        if self.running is None or self.running.done():
            self.running = asyncio.ensure_future(self.run())

    def stop(self) -> None:
        """Do no more."""
        if self.running is not None:
            self.running.cancel()

    async def run(self) -> None:
        """Work until nothing is left."""
        more = True
        while more or self.nudged:
            await asyncio.sleep(_PAUSE)
            if not self.busy():
                self.nudged = False
                more = await asyncio.get_running_loop().run_in_executor(self.worker, self.slice)

    def slice(self) -> bool:
        """In the worker: one piece. What goes wrong in it costs no request its answer."""
        try:
            return self.work(_SLICE)
        except Exception as error:
            log.error("upkeep failed: %s", trail(error))
            return False

"""How a session gets its model: a small one before it completes until it is there.

In: settings. Out: a worker's completer, and the status that says how that went. Runs on the event loop; what loads
has a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from spd_lsp.lsp.status import FROM_SERVER, LOADING, READY, Status
from spd_lsp.lsp.worker import CancellationToken, Cancelled, Worker
from spd_lsp.models.checkpoint.hub import STARTER
from spd_lsp.output.safe_logging import user_message
from spd_lsp.settings import NO_MODEL, Settings, is_server

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer

    Report = Callable[[str], None]
    Load = Callable[[Settings, Report], Completer]


class ModelLoader:
    """Loads models for a worker; a newer call cancels an older one."""

    def __init__(self, worker: Worker, load: Load) -> None:
        self.tried: Settings | None = None  # the settings of the last attempt
        self.loaded: Settings | None = None  # those of the last model that could be loaded
        self._worker = worker
        self._load = load
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spd-lsp-loader")
        self._token = CancellationToken()

    async def load(self, settings: Settings, report: Report) -> Status | None:
        """Load a model, or else keep a small one before it, or else load the bundled one; how that went.

        None if a newer call cancelled this one. `report` is called on the event loop.
        """
        self.cancel()
        self._token = token = CancellationToken()
        self.tried = settings
        problem = await self._attempt(settings, report, token)
        instead = ""
        if problem and not token.is_cancelled and self._worker.completer and self.loaded:
            instead = f"{problem}; meanwhile completing with {self.loaded.model}"
            self._worker.submit(self._worker.apply_settings, settings)
            problem = ""
        elif problem and not token.is_cancelled and settings.model != STARTER:
            instead = f"{problem}; meanwhile completing with {STARTER}"
            bundled = replace(settings, model=STARTER, device="auto", fill_format="auto")
            problem = await self._attempt(bundled, report, token)
        if token.is_cancelled:
            return None
        ready = FROM_SERVER if self.loaded and is_server(self.loaded.model) else READY
        return Status("error" if problem else "normal", problem or ready, problem=instead)

    def cancel(self) -> None:
        """Stop loading at its next report."""
        self._token.is_cancelled = True

    def close(self) -> None:
        """Begin no more work."""
        self.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _attempt(self, settings: Settings, report: Report, token: CancellationToken) -> str:
        """Replace the completer; what went wrong, or an empty string.

        A small one answers until the new one is there; two large ones at once may not fit.
        """
        loop = asyncio.get_running_loop()

        def report_or_stop(text: str) -> None:
            token.check()
            loop.call_soon_threadsafe(report, text)

        report(LOADING)
        try:
            if self.loaded and self.loaded.model not in (STARTER, NO_MODEL) and not is_server(self.loaded.model):
                await self._worker.use(None)
            completer = await loop.run_in_executor(self._thread, self._load, settings, report_or_stop)
            token.check()
        except Cancelled:
            return "cancelled"
        except Exception as error:
            return user_message(error, "loading the model")
        await self._worker.use(completer)
        self.loaded = settings
        return ""

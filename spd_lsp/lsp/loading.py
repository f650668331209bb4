"""How a session gets its model, and what an editor can show of it.

In: settings. Out: a worker's completer, and a status. A small model completes until the next one is there. This
runs on the event loop, and loading in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spd_lsp.completion.exclusions import OFF
from spd_lsp.completion.loading import NOT_SUPERPOSED
from spd_lsp.lsp.worker import CancellationToken, Cancelled, Worker
from spd_lsp.models.hub import STARTER
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import user_message
from spd_lsp.settings import NO_MODEL, Settings, is_server

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.offer import CompletionResult

    Report = Callable[[str], None]
    Load = Callable[[Settings, Report], Completer]


LOADING = "the model is loading"
READY = "the model is ready"
_FROM_SERVER = f"a model server is asked for whole drafts: {NOT_SUPERPOSED}"
COMPUTING = "the model is still computing"  # the reason if nobody waits for what it computes


@dataclass(slots=True)
class Status:
    """The state of the model, and what the last completion took."""

    kind: str = "loading"  # or "normal", "error"
    message: str = LOADING
    problem: str = ""  # with the model that is set, in whose place another one completes
    reason: str = ""  # why the last completion was empty
    seconds: float = 0.0  # that the last completion took for which there was a pass
    last: CompletionResult | None = None  # of the last completion

    def as_json(
        self, *, busy: bool, settings: Settings, model: str, indexing: tuple[str, float] | None
    ) -> dict[str, Any]:
        """The result of the request `spd-lsp/status`; `busy` while a completion runs.

        model: that completes. indexing: the name of the folder that is being indexed, and the share that is done.
        """
        return {
            "busy": busy or self.kind == "loading",
            "kind": self.kind,
            "message": printable(self.message) if settings.enabled else OFF,
            "reason": printable(self._too_slow() if self.reason == COMPUTING else self.reason),
            "problem": printable(self.problem or (self.last.instead if self.last else "")),
            "model": printable(model),
            "tables": [printable(name) for name in self.last.ngrams] if self.last else [],
            "indexing": {"folder": printable(indexing[0]), "share": indexing[1]} if indexing else None,
            "lastPasses": self.last.passes if self.last else 0,
            "lastTokensRead": self.last.read_tokens if self.last and self.last.passes else 0,
            "lastMilliseconds": round(self.seconds * 1000),
        }

    def _too_slow(self) -> str:
        if self.seconds < 0.05:
            return COMPUTING
        return f"the model takes {self.seconds:.1f} s for a completion, and typing went on before that"


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
        ready = _FROM_SERVER if self.loaded and is_server(self.loaded.model) else READY
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

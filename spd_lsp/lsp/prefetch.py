"""Reads the prompt at the last edit while the editor is silent, so that the next request finds it in the KV cache.

In: edited documents. Out: nothing. A request stops it between two chunks of the prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from spd_lsp.lsp.documents import LspDocument
from spd_lsp.lsp.protocol import safe_traceback
from spd_lsp.lsp.request import CompletionRequest, request_at
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason

DELAY_SECONDS = 0.15  # editors that complete while typing ask sooner

log = logging.getLogger(__name__)


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

    def schedule(self, document: LspDocument) -> None:
        """Prefetch at the document's last edit, unless a request or another edit comes first."""
        self.stop()
        self._cancel = CancellationToken()
        self._task = asyncio.ensure_future(self._run(document, self._cancel))

    def stop(self) -> None:
        """Cancel what is scheduled or running."""
        self._cancel.cancel(CancelReason.SUPERSEDED)
        if self._task is not None:
            self._task.cancel()

    async def _run(self, document: LspDocument, cancel: CancellationToken) -> None:
        await asyncio.sleep(DELAY_SECONDS)
        if not self._is_busy():
            request = request_at(document, document.edited_at, explicit=False)
            await asyncio.get_running_loop().run_in_executor(self._worker, self._try, request, cancel)

    def _try(self, request: CompletionRequest, cancel: CancellationToken) -> None:
        """In the worker thread. Failures are logged."""
        try:
            cancel.check()
            self._prefetch(request, cancel.check)
        except Cancelled:
            pass
        except Exception as error:
            log.error("prefetch failed: %s", safe_traceback(error))

"""The prompt of the place last edited, read while its editor is silent, so that a request finds little to read.

In: edits. Out: nothing; the model's memory is the result. A request stops it between two chunks of the prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from spd_lsp.lsp.documents import LspDocument
from spd_lsp.lsp.protocol import trail
from spd_lsp.lsp.request import Question, question
from spd_lsp.lsp.request_scheduler import Cancel, Cancelled, Reason

SILENCE = 0.15  # seconds; editors that ask by themselves ask sooner

log = logging.getLogger(__name__)


class ReadAhead:
    """At most one prompt at a time: that of the newest edit."""

    def __init__(
        self,
        worker: Executor,
        busy: Callable[[], bool],
        read: Callable[[Question, Callable[[], None]], None],
    ) -> None:
        self.worker = worker
        self.busy = busy
        self.read = read
        self.cancel = Cancel()
        self.task: asyncio.Task[None] | None = None

    def follow(self, document: LspDocument) -> None:
        """The document was edited: read there, unless something else happens first."""
        self.stop()
        self.cancel = Cancel()
        self.task = asyncio.ensure_future(self.run(document, self.cancel))

    def stop(self) -> None:
        """Someone has asked, or edited on."""
        self.cancel.cancel(Reason.SUPERSEDED)
        if self.task is not None:
            self.task.cancel()

    async def run(self, document: LspDocument, cancel: Cancel) -> None:
        """Wait for silence, then read."""
        await asyncio.sleep(SILENCE)
        if not self.busy():
            asked = question(document, document.edited_at, forced=False)
            await asyncio.get_running_loop().run_in_executor(self.worker, self.try_to_read, asked, cancel)

    def try_to_read(self, asked: Question, cancel: Cancel) -> None:
        """In the worker. What goes wrong costs no request its answer."""
        try:
            cancel.check()
            self.read(asked, cancel.check)
        except Cancelled:
            pass
        except Exception as error:
            log.error("reading ahead failed: %s", trail(error))

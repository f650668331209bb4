"""Runs servers: one over standard input and output, or one for each editor that connects to a socket.

Sessions at a socket share the model.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async

from spd_lsp.lsp.session import Session
from spd_lsp.lsp.transport.access import private_socket
from spd_lsp.output.safe_logging import log_to_stderr, safe_traceback

if TYPE_CHECKING:
    from spd_lsp.completion.offer import CompletionResult
    from spd_lsp.models.base import Engine
    from spd_lsp.models.batch_scheduler import BatchScheduler

    Report = Callable[[str], None]
    OpenModel = Callable[[Path, str, Report], Any]  # folder, device -> an engine

log = logging.getLogger(__name__)


def serve_stdio(server: Session, *, verbose: int = 0) -> NoReturn:
    """Serve one editor over standard input and output; exit with 0 if it sent `shutdown`, else 1."""
    _set_up_process(verbose)
    output = _Output(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # nothing else that prints, C libraries included, may corrupt the protocol
    asyncio.run(session(server, StdinAsyncReader(sys.stdin.buffer, server.thread_pool), output))
    os._exit(0 if server.has_shut_down else 1)  # without threads that still run, as where a model is loading


class _Output(StdoutWriter):
    """Standard output; what is written after the editor has left is dropped."""

    def write(self, data: bytes) -> None:
        """Send all of it."""
        with suppress(OSError, ValueError):  # ValueError: it is closed
            super().write(data)


class SharedModel:
    """A model that is opened once, for all sessions."""

    def __init__(self, open_model: OpenModel) -> None:
        self._open_model = open_model
        self._lock = threading.Lock()
        self._scheduler: BatchScheduler | None = None

    def seat(self, folder: Path, device: str, report: Report) -> Engine:
        """A session's own engine; the first call opens the model while others wait."""
        from spd_lsp.models.batch_scheduler import BatchScheduler

        with self._lock:
            if self._scheduler is None:
                self._scheduler = BatchScheduler(self._open_model(folder, device, report))
            return self._scheduler.new_engine()


class Sessions:
    """The editors that share a server, each with a session of its own."""

    def __init__(self, make_session: Callable[[], Session]) -> None:
        self.make_session = make_session
        self.on_answer: Callable[[CompletionResult], None] | None = None
        self.open = 0  # how many

    async def _serve_editor(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = self.make_session()
        server.on_answer = self.on_answer
        self.open += 1
        try:
            await session(server, reader, writer)
        finally:
            self.open -= 1

    def serve(self, path: Path, announce: Callable[[], None], *, verbose: int = 0) -> None:
        """Serve every editor that connects to a socket, until the process is ended."""
        _set_up_process(verbose)

        async def listen() -> None:
            async with await asyncio.start_unix_server(self._serve_editor, sock=private_socket(path)) as listener:
                announce()
                await listener.serve_forever()

        asyncio.run(listen())


async def session(
    server: Session, reader: StdinAsyncReader | asyncio.StreamReader, writer: StdoutWriter | asyncio.StreamWriter
) -> None:
    """Serve one editor until it leaves; its failures affect no other session."""
    protocol = server.protocol
    protocol.set_writer(writer)
    try:
        await run_async(threading.Event(), reader, protocol, None, server.report_server_error)
    except SystemExit:
        pass  # the editor sent `exit`
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        log.info("an editor left: %s", type(error).__name__)
    except Exception as error:
        log.error("a session ended: %s", safe_traceback(error))
    finally:
        server.shutdown()
        with suppress(OSError):
            writer.close()


def _set_up_process(verbose: int) -> None:
    """Set up logging, let Ctrl-C end the process at once, and give the event loop short waits for the worker."""
    log_to_stderr(verbose)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else the thread that waits for input would block the exit
    sys.setswitchinterval(0.001)

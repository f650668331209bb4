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
from typing import TYPE_CHECKING, Any

from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async

from ngram_builders.programs import is_running
from spd_lsp.lsp.session import Session
from spd_lsp.lsp.transport.access import is_same_user, listen
from spd_lsp.output.safe_logging import log_to_stderr, safe_traceback

if TYPE_CHECKING:
    from spd_lsp.models.base import Engine
    from spd_lsp.models.batch_scheduler import BatchScheduler

    Report = Callable[[str], None]
    OpenModel = Callable[[Path, str, Report], Any]  # folder, device -> an engine


_POLL_SECONDS = 3.0  # between two looks whether the editor still runs
_MAX_EXIT_SECONDS = 2.0  # for threads that still run; one may wait forever, as for a file on a lost network disk

log = logging.getLogger(__name__)


def serve_stdio(server: Session, *, verbose: int = 0) -> int:
    """Serve one editor over standard input and output; 0 if it sent `shutdown` before it left, else 1."""
    _set_up_process(verbose)
    output = _Output(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # nothing else that prints, C libraries included, may corrupt the protocol
    asyncio.run(_serve_editor(server, output))
    status = _exit_status(server)
    exit_anyway = threading.Timer(_MAX_EXIT_SECONDS, os._exit, (status,))
    exit_anyway.daemon = True
    exit_anyway.start()
    return status


async def _serve_editor(server: Session, output: StdoutWriter) -> None:
    """Serve the editor that started this process, as long as it runs."""
    watch = asyncio.ensure_future(_exit_with_editor(server))
    try:
        await session(server, StdinAsyncReader(sys.stdin.buffer, server.thread_pool), output)
    finally:
        watch.cancel()


async def _exit_with_editor(server: Session) -> None:
    """Exit when the editor's process has ended, though another one may still hold the pipe open.

    The thread that waits for input would block a normal exit.
    """
    while (process := server.editor_process) is None or is_running(process):
        await asyncio.sleep(_POLL_SECONDS)
    log.warning("the editor's process %d has ended", process)
    os._exit(_exit_status(server))


def _exit_status(server: Session) -> int:
    return 0 if server.has_shut_down else 1


class _Output(StdoutWriter):
    """Standard output; what is written after the editor has left is dropped."""

    def write(self, data: bytes) -> None:
        """Send all of it."""
        with suppress(OSError, ValueError):  # ValueError: it is closed
            super().write(data)

    def close(self) -> None:
        """Close it."""
        with suppress(OSError):
            super().close()  # type: ignore[no-untyped-call]


class SocketWriter:
    """The same over a socket, without waiting."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Send all of it in the background."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def close(self) -> None:
        """Close the connection once everything is read."""
        self._writer.close()


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


def serve_many(path: Path, sessions: Sessions, announce: Callable[[], None], *, verbose: int = 0) -> None:
    """Serve every editor that connects to a socket with a server of its own, until the process is ended."""
    _set_up_process(verbose)

    async def serve() -> None:
        async with await listen(path, sessions.serve) as listener:
            announce()
            await listener.serve_forever()

    asyncio.run(serve())


class Sessions:
    """The editors that share a server."""

    def __init__(self, make_server: Callable[[], Session]) -> None:
        self.make_server = make_server
        self.open = 0  # how many

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection, if it is the user's own."""
        if not is_same_user(writer.get_extra_info("socket")):
            log.info("a connection was refused: it is another user's")
            writer.close()
            return
        self.open += 1
        try:
            await session(self.make_server(), reader, SocketWriter(writer))
        finally:
            self.open -= 1


async def session(
    server: Session, reader: StdinAsyncReader | asyncio.StreamReader, writer: StdoutWriter | SocketWriter
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
        writer.close()


def _set_up_process(verbose: int) -> None:
    """Set up logging, let Ctrl-C end the process at once, and give the event loop short waits for the worker."""
    log_to_stderr(verbose)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else the thread that waits for input would block the exit
    sys.setswitchinterval(0.001)

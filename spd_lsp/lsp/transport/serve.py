"""Runs servers: one over standard input and output, or one for each editor that connects to a socket.

Sessions at a socket share the model.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygls.io_ import run_async

from ngram_builders.registry.locks import is_running
from spd_lsp.lsp.server import SpdServer
from spd_lsp.lsp.transport.access import is_same_user, listen
from spd_lsp.lsp.transport.streams import (
    HeaderReader,
    InvalidMessageSize,
    PipeWriter,
    Reader,
    SocketWriter,
    StandardInput,
)
from spd_lsp.output.safe_logging import log_to_stderr, safe_traceback

if TYPE_CHECKING:
    from spd_lsp.models.base import Engine
    from spd_lsp.models.batch_scheduler import BatchScheduler

    Report = Callable[[str], None]
    OpenModel = Callable[[Path, str, Report], Any]  # folder, device -> an engine


_POLL_SECONDS = 3.0  # between two looks whether the editor still runs
_ARENAS = -8  # M_ARENA_MAX of mallopt(3)
_LARGE = -3  # M_MMAP_THRESHOLD
_HEALTHY_SECONDS = 2.0  # within which the event loop answers
_MAX_EXIT_SECONDS = 2.0  # for threads that still run; one may wait forever, as for a file on a lost network disk
_COLLECT_DELAY = 1.0  # seconds for the threads and tasks of a session to end

log = logging.getLogger(__name__)
_pygls_log = logging.getLogger(f"{__name__}.pygls")  # would log tracebacks of clients' mistakes
_pygls_log.disabled = True


def serve_stdio(server: SpdServer, *, verbose: int = 0) -> int:
    """Serve one editor over standard input and output; 0 if it sent `shutdown` before it left, else 1."""
    _set_up_process(verbose)
    writer = PipeWriter(os.dup(1))
    os.dup2(2, 1)  # nothing else that prints, C libraries included, may corrupt the protocol
    asyncio.run(_serve_editor(server, writer))
    _exit_soon(_exit_status(server))
    return _exit_status(server)


def _exit_soon(status: int) -> None:
    """End the process even if a thread does not end."""
    timer = threading.Timer(_MAX_EXIT_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()


async def _serve_editor(server: SpdServer, writer: PipeWriter) -> None:
    """Serve the editor that started this process, as long as it runs."""
    watch = asyncio.ensure_future(_exit_with_editor(server))
    try:
        await session(server, StandardInput(sys.stdin.buffer, server.thread_pool), writer)
    finally:
        watch.cancel()


async def _exit_with_editor(server: SpdServer) -> None:
    """Exit when the editor's process has ended, though another one may still hold the pipe open.

    The thread that waits for input would block a normal exit.
    """
    while (process := server.editor_process) is None or is_running(process):
        await asyncio.sleep(_POLL_SECONDS)
    log.warning("the editor's process %d has ended", process)
    os._exit(_exit_status(server))


def _exit_status(server: SpdServer) -> int:
    return 0 if server.protocol.shutdown_requested else 1


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

    def release_memory(self) -> None:
        """Give back what sessions that have ended needed."""
        if self._scheduler is not None:
            self._scheduler.engine.release_memory()


def serve_many(
    path: Path, sessions: Sessions, announce: Callable[[], None] = lambda: None, *, verbose: int = 0
) -> None:
    """Serve every editor that connects to a socket with a server of its own, until the process is ended."""
    _set_up_process(verbose)
    _return_memory_soon()

    async def serve() -> None:
        async with await listen(path, sessions.serve) as listener:
            sessions.loop = asyncio.get_running_loop()
            announce()
            await listener.serve_forever()

    asyncio.run(serve())


def _return_memory_soon() -> None:
    """Have the sessions' many threads allocate from few heaps, and large arrays be returned to the system."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # of other C libraries than GNU's
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_ARENAS, 2)
            mallopt(_LARGE, 256 << 10)


class Sessions:
    """The editors that share a server, and no more of them than allowed."""

    def __init__(
        self,
        make_server: Callable[[], SpdServer],
        max_sessions: int = 64,
        release_memory: Callable[[], None] = lambda: None,
    ) -> None:
        """`release_memory` is called in a thread of its own once what a session held is gone."""
        self.make_server = make_server
        self.release_memory = release_memory
        self.collecting: asyncio.TimerHandle | None = None  # once for all sessions that end at the same time
        self.max_sessions = max_sessions
        self.open = 0
        self.loop: asyncio.AbstractEventLoop | None = None  # once they are served

    def are_answered(self) -> bool:
        """Whether the event loop does what it is asked to. Called by other threads."""
        done = threading.Event()
        if self.loop is not None:
            self.loop.call_soon_threadsafe(done.set)
        return done.wait(_HEALTHY_SECONDS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection, if it is the user's own."""
        out = SocketWriter(writer)
        if not is_same_user(writer.get_extra_info("socket")):
            log.info("a connection was refused: it is another user's")
            out.close()
        elif self.open >= self.max_sessions:
            log.warning("a connection was refused: %d editors are connected", self.open)
            out.write(_too_many_editors(self.max_sessions))
            out.close()
        else:
            self.open += 1
            try:
                await session(self.make_server(), reader, out)
            finally:
                self.open -= 1
                if self.collecting is not None:
                    self.collecting.cancel()
                loop = asyncio.get_running_loop()
                self.collecting = loop.call_later(_COLLECT_DELAY, self._give_back)

    def _give_back(self) -> None:
        """Free the reference cycles of ended sessions, and have the system get their memory."""
        gc.collect()
        threading.Thread(target=self._release, daemon=True).start()

    def _release(self) -> None:
        self.release_memory()
        if sys.platform == "linux":
            with suppress(AttributeError):  # of other C libraries than GNU's
                ctypes.CDLL(None).malloc_trim(0)


def _too_many_editors(max_sessions: int) -> bytes:
    """The message that a surplus editor shows, the only one that a server may send before `initialize`."""
    text = f"spd-lsp: {max_sessions} editors use this server, its maximum; close one, or raise --sessions"
    params = {"type": 1, "message": text}
    body = json.dumps({"jsonrpc": "2.0", "method": "window/showMessage", "params": params}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


async def session(server: SpdServer, reader: Reader, writer: PipeWriter | SocketWriter) -> None:
    """Serve one editor until it leaves; its failures affect no other session."""
    server._stop_event = stop = threading.Event()
    protocol = server.protocol
    protocol.set_writer(writer)
    try:
        await run_async(stop, HeaderReader(reader), protocol, _pygls_log, protocol.reject_unreadable)
    except SystemExit:
        pass  # the editor sent `exit`
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        log.info("an editor left: %s", type(error).__name__)
    except InvalidMessageSize as error:
        log.warning("a session ended: %s", error)
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

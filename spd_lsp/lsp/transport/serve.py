"""How editors reach servers: one over standard input and output, or many through a door that share a model.

Each connection is a session of its own. The door says who may stay; here is only counted how many.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygls.io_ import run_async

from spd_lsp.lsp.protocol import log_to_stderr, safe_traceback
from spd_lsp.lsp.server import SpdServer
from spd_lsp.lsp.transport.access import Door
from spd_lsp.lsp.transport.editor_process import process_ended
from spd_lsp.lsp.transport.streams import Headers, Oversized, Reader, SocketWire, StandardInput, Wire

if TYPE_CHECKING:
    from spd_lsp.models.base import Engine
    from spd_lsp.models.batch_scheduler import BatchScheduler

    Report = Callable[[str], None]
    Open = Callable[[Path, str, Report], Any]  # folder, device -> an engine


_MOST_SESSIONS = 64
_MOST_STRANGERS = 64  # connections that have not proved yet that they may stay
_CALM = 1.0  # seconds for what a session started to end with it

log = logging.getLogger(__name__)
unsaid = logging.getLogger(f"{__name__}.pygls")  # tracebacks of what clients get wrong, which is said in one line
unsaid.disabled = True


def serve_stdio(server: SpdServer, *, verbose: int = 0) -> int:
    """Serve one editor over standard input and output; 0 if it said `shutdown` before it left, else 1."""
    prepare(verbose)
    wire = Wire(os.dup(1))
    os.dup2(2, 1)  # whatever prints from here on, C libraries included, cannot break the protocol
    asyncio.run(serve_one(server, wire))
    return 0 if server.protocol.shutdown_requested else 1


async def serve_one(server: SpdServer, wire: Wire) -> None:
    """Serve the editor that started this process, as long as it runs."""
    watch = asyncio.ensure_future(_end_with_editor(server))
    try:
        await session(server, StandardInput(sys.stdin.buffer, server.thread_pool), wire)
    finally:
        watch.cancel()


async def _end_with_editor(server: SpdServer) -> None:
    """End the process when the editor's has ended, for which the thread that waits for input would not wake."""
    process = await process_ended(lambda: server.editor_process)
    log.warning("the editor, process %d, is process_ended", process)
    os._exit(0 if server.protocol.shutdown_requested else 1)


class SharedModel:
    """A model that is opened once, and of which every session gets a seat."""

    def __init__(self, open_model: Open) -> None:
        self.open_model = open_model
        self.lock = threading.Lock()
        self.scheduler: BatchScheduler | None = None

    def seat(self, folder: Path, device: str, report: Report) -> Engine:
        """A session's own engine; the first one opens the model while the others wait."""
        from spd_lsp.models.batch_scheduler import BatchScheduler

        with self.lock:
            if self.scheduler is None:
                self.scheduler = BatchScheduler(self.open_model(folder, device, report))
            return self.scheduler.new_engine()


def serve_at(
    door: Door,
    make: Callable[[], SpdServer],
    tell: Report = log.info,
    *,
    most: int = _MOST_SESSIONS,
    verbose: int = 0,
) -> int:
    """Serve every editor that the door admits, each by a server of its own, until the process is ended."""
    prepare(verbose)
    asyncio.run(listen(door, Sessions(door, make, most), tell))
    return 0


async def listen(door: Door, sessions: Sessions, tell: Report) -> None:
    """Let editors in for ever."""
    listener = await door.open(sessions.serve)
    tell(door.advice)
    async with listener:
        await listener.serve_forever()


class Sessions:
    """Who is there, each for itself, and no more of them than agreed."""

    def __init__(self, door: Door, make: Callable[[], SpdServer], most: int) -> None:
        self.door = door
        self.make = make
        self.most = most
        self.strangers = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve who comes through the door, if it may."""
        wire = SocketWire(writer)
        if not await self.admitted(reader, writer):
            log.info("a connection was refused: it is not the user's")
            wire.close()
        elif self.open >= self.most:
            log.warning("a connection was refused: %d editors are here already", self.open)
            wire.write(_too_many(self.most))
            wire.close()
        else:
            self.open += 1
            try:
                await session(self.make(), reader, wire)
            finally:
                self.open -= 1
                asyncio.get_running_loop().call_later(_CALM, self.collect)

    def collect(self) -> None:
        """Free what sessions left that refers to itself, if nobody waits meanwhile."""
        if not self.open:
            gc.collect()

    async def admitted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the door lets a stranger in; too many at once are not asked."""
        if self.strangers >= _MOST_STRANGERS:
            return False
        self.strangers += 1
        try:
            return await self.door.admits(reader, writer)
        except OSError:
            return False  # it has left already
        finally:
            self.strangers -= 1


def _too_many(most: int) -> bytes:
    """What an editor shows when it is one too many: the only thing that may be said before it has spoken."""
    text = f"spd-lsp: the server has {most} editors, as many as it takes; close one, or serve more with --sessions"
    params = {"type": 1, "message": text}
    body = json.dumps({"jsonrpc": "2.0", "method": "window/showMessage", "params": params}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


async def session(server: SpdServer, reader: Reader, wire: Wire | SocketWire) -> None:
    """Serve one editor until it leaves; what goes wrong with it concerns no other."""
    server._stop_event = stop = threading.Event()
    protocol = server.protocol
    protocol.set_writer(wire)
    try:
        await run_async(stop, Headers(reader), protocol, unsaid, protocol.reject_unreadable)
    except SystemExit:
        pass  # the editor said `exit`
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        log.info("an editor left: %s", type(error).__name__)
    except Oversized as refused:
        log.warning("a session ended: %s", refused)
    except Exception as error:
        log.error("a session ended: %s", safe_traceback(error))
    finally:
        server.shutdown()
        wire.close()


def prepare(verbose: int) -> None:
    """Set up the process: its log, Ctrl-C that ends it at once, and quick turns for the event loop."""
    log_to_stderr(verbose)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else the thread that waits for input would hold it
    sys.setswitchinterval(0.001)

"""How editors reach servers: one over standard input and output, or many over TCP that share a model.

Over TCP each connection is a session of its own. Nothing is protected: whoever reaches the port can complete. So
it is one of this machine alone, unless the person says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygls.io_ import StdinAsyncReader, run_async

from spd_lsp.parent import gone
from spd_lsp.protocol import log_to_stderr, trail
from spd_lsp.server import SpdServer
from spd_lsp.settings import UserError
from spd_lsp.wire import Headers, Reader, SocketWire, Wire

if TYPE_CHECKING:
    from spd_lsp.engine.batching import SharedEngine
    from spd_lsp.engine.runner import Runner

    Report = Callable[[str], None]
    Open = Callable[[Path, str, Report], Any]  # folder, device -> an engine

__all__ = ["SharedModel", "serve_stdio", "serve_tcp"]

log = logging.getLogger(__name__)
unsaid = logging.getLogger(f"{__name__}.pygls")  # tracebacks of what clients get wrong, which is said in one line
unsaid.disabled = True


def serve_stdio(server: SpdServer, *, verbose: int = 0) -> int:
    """Serve one editor over standard input and output; 0 if it said `shutdown` before it left, else 1."""
    prepare(verbose)
    wire = Wire(os.dup(1))
    os.dup2(2, 1)  # whatever prints from here on, C libraries included, cannot break the protocol
    asyncio.run(serve_one(server, wire))
    return 0 if server.protocol.told_to_stop else 1


async def serve_one(server: SpdServer, wire: Wire) -> None:
    """Serve the editor that started this process, as long as it runs."""
    watch = asyncio.ensure_future(end_with_editor(server))
    try:
        await session(server, StdinAsyncReader(sys.stdin.buffer, server.thread_pool), wire)
    finally:
        watch.cancel()


async def end_with_editor(server: SpdServer) -> None:
    """End the process when the editor's has ended, for which the thread that waits for input would not wake."""
    process = await gone(lambda: server.editor)
    log.warning("the editor, process %d, is gone", process)
    os._exit(0 if server.protocol.told_to_stop else 1)


class SharedModel:
    """A model that is opened once, and of which every session gets a seat."""

    def __init__(self, open_model: Open) -> None:
        self.open_model = open_model
        self.lock = threading.Lock()
        self.shared: SharedEngine | None = None

    def seat(self, folder: Path, device: str, report: Report) -> Runner:
        """A session's own engine; the first one opens the model while the others wait."""
        from spd_lsp.engine.batching import SharedEngine

        with self.lock:
            if self.shared is None:
                self.shared = SharedEngine(self.open_model(folder, device, report))
            return self.shared.seat()


def serve_tcp(
    make: Callable[[], SpdServer], host: str, port: int, tell: Report = log.info, *, verbose: int = 0
) -> int:
    """Serve every editor that connects, each by a server of its own, until the process is ended."""
    prepare(verbose)
    asyncio.run(listen(make, host, port, tell))
    return 0


async def listen(make: Callable[[], SpdServer], host: str, port: int, tell: Report) -> None:
    """Accept editors for ever."""
    try:
        listener = await asyncio.start_server(
            lambda reader, writer: session(make(), reader, SocketWire(writer)), host, port
        )
    except OSError as error:
        raise UserError(
            f"expected to listen at {host}:{port}, found: {error.strerror}; choose another port"
        ) from error
    tell(f"listening at {host}:{port}; editors run: spd-lsp connect {host}:{port}")
    async with listener:
        await listener.serve_forever()


async def session(server: SpdServer, reader: Reader, wire: Wire | SocketWire) -> None:
    """Serve one editor until it leaves; what goes wrong with it concerns no other."""
    server._stop_event = stop = threading.Event()
    protocol = server.protocol
    protocol.set_writer(wire)
    try:
        await run_async(stop, Headers(reader), protocol, unsaid, protocol.refuse_unreadable)
    except SystemExit:
        pass  # the editor said `exit`
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        log.info("an editor left: %s", type(error).__name__)
    except Exception as error:
        log.error("a session ended: %s", trail(error))
    finally:
        server.shutdown()
        wire.close()


def prepare(verbose: int) -> None:
    """Set up the process: its log, Ctrl-C that ends it at once, and quick turns for the event loop."""
    log_to_stderr(verbose)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else the thread that waits for input would hold it
    sys.setswitchinterval(0.001)

"""Many editors over TCP, one model: each connection is a session of its own, and they share what computes.

Comes in: connections. Goes out: what `server` answers to each. Nothing is protected: whoever reaches the port
can complete, so it is a loopback address unless the person says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygls.io_ import run_async

from spd_lsp.protocol import trail
from spd_lsp.server import SpdServer, prepare
from spd_lsp.settings import UserError

if TYPE_CHECKING:
    from spd_lsp.engine.batching import Seat, SharedEngine

    Report = Callable[[str], None]
    Open = Callable[[Path, str, Report], Any]  # folder, device -> an engine

__all__ = ["SharedModel", "serve_tcp"]

log = logging.getLogger(__name__)


class SharedModel:
    """A model that is opened once, and of which every session gets a seat."""

    def __init__(self, open_model: Open) -> None:
        self.open_model = open_model
        self.lock = threading.Lock()
        self.shared: SharedEngine | None = None

    def seat(self, folder: Path, device: str, report: Report) -> Seat:
        """A session's own engine; the first one opens the model while the others wait."""
        from spd_lsp.engine.batching import SharedEngine

        with self.lock:
            if self.shared is None:
                self.shared = SharedEngine(self.open_model(folder, device, report))
            return self.shared.seat()


def serve_tcp(make: Callable[[], SpdServer], host: str, port: int, *, verbose: int = 0) -> int:
    """Serve every editor that connects, each by a server of its own, until the process is ended."""
    prepare(verbose)
    asyncio.run(listen(make, host, port))
    return 0


async def listen(make: Callable[[], SpdServer], host: str, port: int) -> None:
    """Accept editors for ever."""
    try:
        listener = await asyncio.start_server(lambda *ends: session(make(), *ends), host, port)
    except OSError as error:
        raise UserError(
            f"expected to listen at {host}:{port}, found: {error.strerror}; choose another port"
        ) from error
    log.info("listening at %s:%d", host, port)
    async with listener:
        await listener.serve_forever()


async def session(server: SpdServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one editor until it leaves; what goes wrong with it concerns no other."""
    server._stop_event = stop = threading.Event()
    server.protocol.set_writer(writer)
    try:
        await run_async(stop, reader, server.protocol, error_handler=server.report_server_error)
    except SystemExit:
        pass  # the editor said `exit`
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        log.info("an editor left: %s", type(error).__name__)
    except Exception as error:
        log.error("a session ended: %s", trail(error))
    finally:
        server.shutdown()
        writer.close()

"""Runs the server until its process is to end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from uvicorn import Config, Server

from spd_lsp.http.app import App
from spd_lsp.http.completions import Completions

_MAX_CONNECTIONS = 64  # with requests; others get status 503
_IDLE_SECONDS = 10  # that a connection without a request is kept


def serve(sock: socket.socket, app: App, completions: Completions, announce: Callable[[], None]) -> None:
    """Serve until the process is to end."""
    config = Config(
        app,
        loop="asyncio",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=1,
    )

    async def run() -> None:
        completions.worker.wake()
        announce()
        try:
            await Server(config).serve([sock])
        finally:
            completions.worker.close()

    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings are clients' mistakes
    asyncio.run(run())

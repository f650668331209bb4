"""Runs the server: connections are few, requests have to arrive in time, and answers have to be read."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from spd_lsp.http.app import App
from spd_lsp.http.completions import CompletionThread

MAX_CONNECTIONS = 64
REQUEST_SECONDS = 10.0  # for all of a request to arrive
READING_SECONDS = 10.0  # for a client to read on

log = logging.getLogger(__name__)


class LimitedConnection(H11Protocol):
    """A connection that is ended if it is one too many, and if its client is too slow."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadlines: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            log.warning("a connection was refused: %d are open", MAX_CONNECTIONS)
            transport.abort()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        for what in list(self._deadlines):
            self._met(what)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        super().data_received(data)
        self._expect_request()

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        self._expect_request()

    def pause_writing(self) -> None:
        """See asyncio."""
        super().pause_writing()
        self._end_unless_met("answers are not read", READING_SECONDS)

    def resume_writing(self) -> None:
        """See asyncio."""
        super().resume_writing()
        self._met("answers are not read")

    def _expect_request(self) -> None:
        """Give a request that is not there in full its time, from when the connection began to wait for it."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            self._end_unless_met("no request arrives", REQUEST_SECONDS)
        else:
            self._met("no request arrives")

    def _end_unless_met(self, what: str, seconds: float) -> None:
        if what not in self._deadlines and not self.transport.is_closing():
            self._deadlines[what] = self.loop.call_later(seconds, self._end, what)

    def _met(self, what: str) -> None:
        if deadline := self._deadlines.pop(what, None):
            deadline.cancel()

    def _end(self, what: str) -> None:
        log.info("a connection was ended: %s", what)
        self.transport.abort()


def serve(sock: socket.socket, app: App, completions: CompletionThread, announce: Callable[[], None]) -> None:
    """Serve until the process is told to end."""
    config = Config(
        app,
        loop="asyncio",
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )

    async def run() -> None:
        idle = asyncio.ensure_future(completions.work_while_idle())
        announce()
        try:
            await Server(config).serve([sock])
        finally:
            idle.cancel()
            completions.close()

    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings are clients' mistakes
    asyncio.run(run())

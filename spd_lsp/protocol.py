"""The few places where pygls differs from the specification, or would log or send what it must not.

In: JSON-RPC messages. Out: an answer to every request, whatever is wrong with it. An error's text and values may
hold user code, so only its type and the places it passed are logged. Knows nothing of completions.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcServerNotInitialized,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage, JsonRPCResponseMessage

from spd_lsp.documents import LspDocument, LspWorkspace

__all__ = ["SpdProtocol", "Wire", "log_to_stderr", "progress", "reply_to", "trail"]

PATIENCE = 5.0  # seconds that a client has to answer a request of ours

log = logging.getLogger(__name__)


def trail(error: BaseException) -> str:
    """An error's type and the places it passed, without its text or any value."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"


class Discreet(logging.Formatter):
    """Log lines whose tracebacks name places only: an error's text may quote what a person wrote."""

    def formatException(self, ei: Any) -> str:
        """The error's type and the places it passed."""
        return trail(ei[1])


def log_to_stderr(verbose: int) -> None:
    """Warnings at 0, one line a completion at 1, more from 2 on; pygls logs whole messages, so never its own."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(Discreet("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logging.WARNING if not verbose else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(level=level, handlers=[lines])
    logging.getLogger("pygls").setLevel(logging.WARNING)


class Wire:
    """The protocol's own way out; what is written after the client left is dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._open = True

    def write(self, data: bytes) -> None:
        """Send all of it."""
        rest = memoryview(data)
        try:
            while self._open and rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._open = False  # the end of input follows and ends the server

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Hang up."""
        if self._open:
            self._open = False
            os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that does not fit its type; one without a method is a reply to us."""

    id: str | int | None
    method: str | None


class SpdProtocol(LanguageServerProtocol):
    """pygls's protocol that answers every request."""

    @property
    def told_to_stop(self) -> bool:
        """Whether the client has sent `shutdown`."""
        return self._shutdown

    def adopt_workspace(self) -> None:
        """Replace the workspace of `initialize` by one with the protocol's line ends."""
        old, sync = self.workspace, self._server._text_document_sync_kind
        self._workspace = LspWorkspace(old.root_uri, sync, list(old.folders.values()), old.position_encoding)

    def opened(self, uri: str) -> LspDocument | None:
        """The open document of that URI, or None."""
        return self.workspace.opened(uri) if isinstance(self.workspace, LspWorkspace) else None

    def documents(self) -> list[LspDocument]:
        """All open documents."""
        found = self.workspace.text_documents.values() if self._workspace is not None else ()
        return [document for document in found if isinstance(document, LspDocument)]

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The typed message, or Malformed: pygls would leave the sender waiting, and log the values."""
        if "jsonrpc" not in data:
            return data
        try:
            return self._converter.structure(data, self._message_type(data))
        except Exception as error:
            log.warning("malformed %s: %s", data.get("method", "reply"), type(error).__name__)
            return Malformed(data.get("id"), data.get("method"))

    def _message_type(self, data: dict[str, Any]) -> type[Any]:
        if "method" in data:
            known = self.get_message_type(data["method"])
            data.setdefault("params", None)
            return known or (JsonRPCRequestMessage if "id" in data else JsonRPCNotification)
        if "error" in data:
            return types.ResponseErrorMessage
        data.setdefault("result", None)
        return self._result_types.pop(data["id"], None) or JsonRPCResponseMessage

    def handle_message(self, message: Any) -> None:
        """Pass a message on when it is well formed and its time has come, else answer why not."""
        method, msg_id = getattr(message, "method", None), getattr(message, "id", None)
        error = self._objection(message, method)
        if isinstance(message, Malformed) and message.method is None:
            self._handle_response(message.id or "", error=error.to_response_error() if error else None)
        elif error is None:
            super().handle_message(message)
        elif msg_id is not None or isinstance(message, list):
            self._send_response(msg_id, error=error.to_response_error())  # type: ignore[arg-type]

    def _objection(self, message: Any, method: str | None) -> JsonRpcException | None:
        if isinstance(message, Malformed):
            return JsonRpcInvalidParams(f"the parameters do not fit {method}")
        if getattr(message, "jsonrpc", None) != self.VERSION:
            return JsonRpcInvalidRequest("expected one JSON-RPC 2.0 message")
        if method is None or method == types.EXIT:
            return None
        if self._shutdown:
            return JsonRpcInvalidRequest("the server is shutting down")
        if self._workspace is None and method != types.INITIALIZE:
            return JsonRpcServerNotInitialized("expected `initialize` first")
        if self._workspace is not None and method == types.INITIALIZE:
            return JsonRpcInvalidRequest("the server is initialized already")
        return None

    def _send_handler_result(self, future: Any, *, msg_id: str | int) -> None:
        """Answer with the result, or with an error that names no path and carries no traceback."""
        error = None if future.cancelled() else future.exception()
        if error is None:
            super()._send_handler_result(future, msg_id=msg_id)
            return
        self._request_futures.pop(msg_id, None)
        if not isinstance(error, JsonRpcException):
            log.error("request failed: %s", trail(error))
            error = JsonRpcInternalError(f"{type(error).__name__} in the server; its log says where")
        self._send_response(msg_id, error=error.to_response_error())

    def _handle_cancel_notification(self, msg_id: str | int) -> None:
        """A cancel that comes after the answer is normal, not worth a warning."""
        if msg_id in self._request_futures:
            super()._handle_cancel_notification(msg_id)

    def _handle_response(
        self, msg_id: str | int, result: Any = None, error: types.ResponseError | None = None
    ) -> None:
        """Drop the client's answer when nobody waits for it any more."""
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            del self._request_futures[msg_id]
            return
        super()._handle_response(msg_id, result, error)


async def reply_to(request: Awaitable[Any]) -> Any:
    """The client's answer, or None if it refuses or takes too long."""
    try:
        return await asyncio.wait_for(request, PATIENCE)
    except (JsonRpcException, asyncio.TimeoutError):
        return None


@asynccontextmanager
async def progress(ls: LanguageServer, title: str) -> AsyncIterator[Callable[[str], None]]:
    """Where a long work tells how far it is: the client's progress display, or its log."""
    token = str(uuid.uuid4())
    window = ls.client_capabilities.window
    if window and window.work_done_progress:
        await reply_to(ls.work_done_progress.create_async(token))
    if token not in ls.work_done_progress.tokens:
        yield lambda text: ls.window_log_message(
            types.LogMessageParams(types.MessageType.Info, f"{title}: {text}")
        )
        return
    display = ls.work_done_progress
    display.begin(token, types.WorkDoneProgressBegin(title=title))
    try:
        yield lambda text: display.report(token, types.WorkDoneProgressReport(message=text))
    finally:
        display.end(token, types.WorkDoneProgressEnd())
        display.tokens.pop(token, None)

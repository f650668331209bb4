"""The few places where pygls differs from the specification, or would log or send what it must not.

In: JSON-RPC messages. Out: an answer to every request, whatever is wrong with it. An error's text and values may
hold user code, so only its type and the places it passed are logged. Knows nothing of completions.
"""

from __future__ import annotations

import asyncio
import logging
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
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage, JsonRPCResponseMessage

from spd_lsp.lsp.documents import LspDocument, LspWorkspace
from spd_lsp.printable import printable

PATIENCE = 5.0  # seconds that a client has to answer a request of ours
_LONGEST_NAME = 1000  # characters of a method or an id, which answers and the log repeat

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
    """Warnings at 0, one line a completion at 1, more from 2 on; pygls logs whole messages, so never those."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(Discreet("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logging.WARNING if not verbose else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(level=level, handlers=[lines])
    logging.getLogger("pygls").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that does not fit its type; one without a method is a reply to us."""

    id: str | int | None
    method: str | None
    error: JsonRpcException
    asks: bool  # whether its sender waits for an answer


def _usable(msg_id: Any) -> str | int | None:
    """An id that an answer can name, else None. Example: [1] -> None."""
    if isinstance(msg_id, str) and len(msg_id) > _LONGEST_NAME:
        return None
    return msg_id if isinstance(msg_id, (str, int, float)) else None  # type: ignore[return-value]


def asks(message: Any) -> bool:
    """Whether something is to be answered: requests, and what is no message at all."""
    if isinstance(message, Malformed):
        return message.asks
    return not hasattr(message, "jsonrpc") or getattr(message, "id", None) is not None


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

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]  # pygls's is cached
        """The type of a method's messages; pygls's cache of this look-up holds every session there was."""
        known: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None,))[0]
        return known

    def get_result_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        """The type of a method's result, likewise."""
        known: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None, None))[1]
        return known

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
        asked, method = data.get("id"), data.get("method")
        msg_id, fits = _usable(asked), method is None or (isinstance(method, str) and len(method) <= _LONGEST_NAME)
        if not fits or msg_id is not asked:
            log.warning("malformed message: its id or its method is no name")
            fault = JsonRpcInvalidRequest("expected a string as the method, and a string or a number as the id")
            return Malformed(msg_id, method if fits else "", fault, asked is not None)
        try:
            params, message = data.get("params"), self._converter.structure(data, self._message_type(data))
            if isinstance(message, JsonRPCNotification):
                message.params = params  # pygls replaces objects by named tuples, which loses keys
            return message
        except Exception as error:
            log.warning("malformed %s: %s", method or "reply", type(error).__name__)
            return Malformed(
                msg_id, method, JsonRpcInvalidParams(f"the parameters do not fit {method}"), msg_id is not None
            )

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
        if isinstance(message, Malformed) and message.method is None:
            self._handle_response(message.id or "", error=message.error.to_response_error())
        elif (error := self._objection(message, getattr(message, "method", None))) is None:
            super().handle_message(message)
        elif asks(message):
            msg_id = _usable(message.get("id")) if isinstance(message, dict) else getattr(message, "id", None)
            self._refuse(msg_id, error)

    def refuse_unreadable(self, error: Exception, source: object = None) -> None:
        """Answer bytes that are no JSON; who asked what cannot be known."""
        if isinstance(error, (ValueError, RecursionError)):
            log.warning("a message was no JSON: %s", type(error).__name__)
            self._refuse(None, JsonRpcParseError("expected JSON in UTF-8"))
        else:
            log.error("a message could not be handled: %s", trail(error))

    def _refuse(self, msg_id: str | int | None, error: JsonRpcException) -> None:
        if msg_id is None:  # pygls would leave the id out
            told = {"code": error.code, "message": error.message}
            self._send_data({"jsonrpc": self.VERSION, "id": None, "error": told})
        else:
            self._send_response(msg_id, error=error.to_response_error())

    def _objection(self, message: Any, method: str | None) -> JsonRpcException | None:
        if isinstance(message, Malformed):
            return message.error
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
        if _usable(msg_id) in self._request_futures:
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
            types.LogMessageParams(types.MessageType.Info, f"{title}: {printable(text)}")
        )
        return
    display = ls.work_done_progress
    display.begin(token, types.WorkDoneProgressBegin(title=title))
    try:
        yield lambda text: display.report(token, types.WorkDoneProgressReport(message=printable(text)))
    finally:
        display.end(token, types.WorkDoneProgressEnd())
        display.tokens.pop(token, None)

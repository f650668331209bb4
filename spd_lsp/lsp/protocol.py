"""JSON-RPC where pygls departs from the specification, or would log or send what it must not.

In: JSON-RPC messages. Out: a reply to every request, however malformed. An error's message may quote the user's
code, so only its type and its stack are logged. Knows nothing of completions.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from pygls.capabilities import get_capability
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

from spd_lsp.lsp import odd_messages
from spd_lsp.lsp.documents import LspWorkspace
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import safe_traceback

REPLY_TIMEOUT = 60.0  # seconds for the client to answer a request of ours; nothing else waits for it
_MAX_NAME_CHARS = 1000  # of a method or an id, which replies and the log repeat

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MalformedMessage:
    """A message that does not fit its type; without a method it is a reply to us."""

    id: str | int | None
    method: str | None
    error: JsonRpcException
    expects_reply: bool
    params: Any = None


def _valid_id(msg_id: Any) -> str | int | None:
    """The id if a reply can repeat it, else None. Example: [1] -> None."""
    if isinstance(msg_id, str) and len(msg_id) > _MAX_NAME_CHARS:
        return None
    return msg_id if isinstance(msg_id, (str, int, float)) else None  # type: ignore[return-value]


def _expects_reply(message: Any) -> bool:
    """Whether to reply: to requests, and to what is not a message at all."""
    if isinstance(message, MalformedMessage):
        return message.expects_reply
    return not hasattr(message, "jsonrpc") or getattr(message, "id", None) is not None


class SpdProtocol(LanguageServerProtocol):
    """pygls's protocol, but every request gets a reply, and every edit that is not understood is told."""

    def __init__(self, server: Any, converter: Any) -> None:
        super().__init__(server, converter)
        converter.register_structure_hook(str, odd_messages.only_string)
        self.on_lost_edit: Callable[[Any], None] = lambda params: None

    @property
    def shutdown_requested(self) -> bool:
        """Whether the client has sent `shutdown`."""
        return self._shutdown

    def install_workspace(self) -> None:
        """Replace the workspace that pygls made at `initialize` by our own."""
        old = self.workspace
        sync = self._server._text_document_sync_kind
        self._workspace = LspWorkspace(old.root_uri, sync, list(old.folders.values()), old.position_encoding)

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]  # pygls's is cached
        """The type of a method's messages. pygls caches this look-up, which keeps every session alive."""
        known: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None,))[0]
        return known

    def get_result_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        """The type of a method's result, likewise."""
        known: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None, None))[1]
        return known

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The typed message, or a MalformedMessage: pygls would log its values and not reply."""
        if "jsonrpc" not in data:
            return data
        raw_id = data.get("id")
        method = data.get("method")
        msg_id = _valid_id(raw_id)
        is_name = "method" not in data or (isinstance(method, str) and len(method) <= _MAX_NAME_CHARS)
        if not is_name or msg_id is not raw_id:
            log.warning("malformed message: invalid id or method")
            error = JsonRpcInvalidRequest("the method must be a string, and the id a string or a number")
            return MalformedMessage(msg_id, method if is_name else "", error, raw_id is not None)
        try:
            params = data.get("params")
            message = odd_messages.structure(self._converter, data, self._message_type(data), method)
            if isinstance(message, (JsonRPCNotification, JsonRPCRequestMessage)):
                message.params = params  # pygls replaces objects by named tuples, which loses keys
            return message
        except Exception as error:
            log.warning("malformed %s: %s", method or "reply", type(error).__name__)
            invalid_params = JsonRpcInvalidParams(f"invalid parameters for {method}")
            return MalformedMessage(msg_id, method, invalid_params, msg_id is not None, data.get("params"))

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
        """Handle a message that is valid in this state of the session, or reply why it is not."""
        if isinstance(message, MalformedMessage) and message.method is None:
            self._handle_response(message.id or "", error=message.error.to_response_error())
        elif (error := self._error_for(message, getattr(message, "method", None))) is None:
            super().handle_message(message)
        elif _expects_reply(message):
            msg_id = _valid_id(message.get("id")) if isinstance(message, dict) else getattr(message, "id", None)
            self._send_error(msg_id, error)
        elif self._workspace is not None and message.method in odd_messages.EDITS:
            self.on_lost_edit(message.params)

    def reject_unreadable(self, error: Exception, source: object = None) -> None:
        """Reply to bytes that are not JSON, without an id."""
        if isinstance(error, (ValueError, RecursionError)):
            log.warning("a message is not JSON: %s", type(error).__name__)
            self._send_error(None, JsonRpcParseError("the message is not JSON in UTF-8"))
        else:
            log.error("failed to handle a message: %s", safe_traceback(error))

    def _send_error(self, msg_id: str | int | None, error: JsonRpcException) -> None:
        if msg_id is None:  # pygls would leave the id out
            body = {"code": error.code, "message": error.message}
            self._send_data({"jsonrpc": self.VERSION, "id": None, "error": body})
        else:
            self._send_response(msg_id, error=error.to_response_error())

    def _error_for(self, message: Any, method: str | None) -> JsonRpcException | None:
        if isinstance(message, MalformedMessage):
            return message.error
        if getattr(message, "jsonrpc", None) != self.VERSION:
            return JsonRpcInvalidRequest("not a JSON-RPC 2.0 message")
        if method is None or method == types.EXIT:
            return None
        if self._shutdown:
            return JsonRpcInvalidRequest("the server is shutting down")
        if self._workspace is None and method != types.INITIALIZE:
            return JsonRpcServerNotInitialized("send `initialize` first")
        if self._workspace is not None and method == types.INITIALIZE:
            return JsonRpcInvalidRequest("the server is already initialized")
        return None

    def _execute_handler(
        self, msg_id: str | int, handler: Any, callback: Any, args: Any = None, kwargs: Any = None
    ) -> None:
        """Run a handler, and forget its future once it is done: pygls does so for requests only."""

        def finish(future: Any) -> None:
            if not future.cancelled():  # `shutdown` cancels what is left while it goes through them
                self._request_futures.pop(msg_id, None)
            with suppress(asyncio.CancelledError):  # pygls goes on after `initialized` if it was cancelled, too
                callback(future)

        super()._execute_handler(msg_id, handler, finish, args, kwargs)

    def _send_handler_result(self, future: Any, *, msg_id: str | int) -> None:
        """Reply with the result, or with an error without paths and traceback."""
        error = None if future.cancelled() else future.exception()
        if error is None:
            super()._send_handler_result(future, msg_id=msg_id)
            return
        if not isinstance(error, JsonRpcException):
            log.error("request failed: %s", safe_traceback(error))
            error = JsonRpcInternalError(f"{type(error).__name__}; see the server's log")
        self._send_response(msg_id, error=error.to_response_error())

    def _handle_cancel_notification(self, msg_id: str | int) -> None:
        """Cancel a request; one that is answered already is ignored without a warning."""
        if _valid_id(msg_id) in self._request_futures:
            super()._handle_cancel_notification(msg_id)

    def _handle_response(
        self, msg_id: str | int, result: Any = None, error: types.ResponseError | None = None
    ) -> None:
        """Pass the client's reply on, unless nobody waits for it any more."""
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            del self._request_futures[msg_id]
            return
        super()._handle_response(msg_id, result, error)


async def reply_or_none(request: Awaitable[Any]) -> Any:
    """The client's reply, or None if it is an error or takes too long."""
    try:
        return await asyncio.wait_for(request, REPLY_TIMEOUT)
    except (JsonRpcException, asyncio.TimeoutError):
        return None


class WorkDoneProgress:
    """The client's progress display, or its log if it has none; to be closed. Nothing waits until it is there.

    The user can `cancel`, if that is given.
    """

    def __init__(self, ls: LanguageServer, title: str, cancel: Callable[[], None] | None = None) -> None:
        self._ls = ls
        self._title = title
        self._cancel = cancel
        self._newest: tuple[str, float | None] | None = None  # report
        self._token = str(uuid.uuid4())
        self._creating: asyncio.Future[None] | None = None
        if get_capability(ls.client_capabilities, "window.work_done_progress"):
            self._creating = asyncio.ensure_future(self._create())

    @property
    def _is_open(self) -> bool:
        return self._token in self._ls.work_done_progress.tokens

    async def _create(self) -> None:
        display = self._ls.work_done_progress
        await reply_or_none(display.create_async(self._token))
        self._creating = None
        if self._is_open:
            self._begin()
        if self._newest:
            self.report(*self._newest)

    def _begin(self) -> None:
        """Open the display. What can be cancelled shows a share from the start."""
        display = self._ls.work_done_progress
        cancel = self._cancel
        if cancel:
            display.tokens[self._token].add_done_callback(lambda future: future.cancelled() and cancel())
        begin = types.WorkDoneProgressBegin(
            title=self._title, cancellable=bool(cancel), percentage=0 if cancel else None
        )
        display.begin(self._token, begin)

    def report(self, text: str, share: float | None = None) -> None:
        """Show a text and the share that is done, once the display is there; a log gets texts only."""
        self._newest = text, share
        if self._is_open:
            percentage = None if share is None else round(share * 100)
            report = types.WorkDoneProgressReport(message=printable(text) or None, percentage=percentage)
            self._ls.work_done_progress.report(self._token, report)
        elif self._creating is None and text:
            message = f"{self._title}: {printable(text)}"
            self._ls.window_log_message(types.LogMessageParams(types.MessageType.Info, message))

    def close(self) -> None:
        """Close the display; one that is not there yet never opens."""
        if self._creating is not None:
            self._creating.cancel()
        elif self._is_open:
            self._ls.work_done_progress.end(self._token, types.WorkDoneProgressEnd())
            self._ls.work_done_progress.tokens.pop(self._token)

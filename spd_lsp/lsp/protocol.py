"""JSON-RPC where pygls would log or send code, forget an edit, or keep what has ended.

In: JSON-RPC messages. Out: typed messages and replies. An error's message may quote the user's code, so only its
type and its stack are logged. Knows nothing of completions.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import attrs
from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage

from spd_lsp.lsp import odd_messages
from spd_lsp.lsp.documents import LspWorkspace
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import safe_traceback

log = logging.getLogger(__name__)
logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it logs whole messages, and so code


class SpdProtocol(LanguageServerProtocol):
    """pygls's protocol, but clients may send odd messages, and edits that are not understood are reported."""

    _server: Any  # a `Session`

    def __init__(self, server: Any, converter: Any) -> None:
        self.documents: LspWorkspace | None = None  # that are open, from `initialize` on
        super().__init__(server, converter)
        converter.register_structure_hook(str, odd_messages.only_string)
        for kind in (JsonRPCNotification, JsonRPCRequestMessage):  # of our own methods
            converter.register_structure_hook(kind, _untyped)

    @property
    def workspace(self) -> LspWorkspace:
        """The open documents, in place of the workspace that pygls makes."""
        if self.documents is None:
            made = super().workspace  # by pygls
            folders = list(made.folders.values())
            incremental = types.TextDocumentSyncKind.Incremental
            self.documents = LspWorkspace(made.root_uri, incremental, folders, made.position_encoding)
        return self.documents

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]  # pygls's is cached
        """The type of a method's messages. pygls caches this look-up, which keeps every session alive."""
        known: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None,))[0]
        return known

    def get_result_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        """The type of a method's result, likewise."""
        known: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None, None))[1]
        return known

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The typed message. A request that does not fit is answered; an edit that does not fit is reported."""
        method = data.get("method")
        kind = self.get_message_type(method) if "jsonrpc" in data and isinstance(method, str) else None
        if kind is None:
            return super().structure_message(data)
        data.setdefault("params", None)
        try:
            return odd_messages.structure(self._converter, data, kind, method)
        except Exception as error:
            log.warning("malformed %s: %s", method, type(error).__name__)
            invalid = JsonRpcInvalidParams(f"invalid parameters for {method}")
            if "id" in data:
                self._send_response(data["id"], error=invalid.to_response_error())
            elif method in odd_messages.EDITS:
                self._server.note_lost_edit(data["params"])
            raise invalid from None

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


def _untyped(data: dict[str, Any], kind: type[Any]) -> Any:
    """A message whose parameters stay as they are: pygls would make named tuples of them, and lose keys."""
    return kind(**{field.name: data.get(field.name) for field in attrs.fields(kind)})


async def reply_or_none(request: Awaitable[Any]) -> Any:
    """The client's reply, whenever it comes, or None if it is an error."""
    try:
        return await request
    except JsonRpcException:
        return None


class WorkDoneProgress:
    """The client's progress display, or its log if it has none; to be closed. Nothing waits until it is there.

    The user can `cancel`, if that is given.
    """

    def __init__(self, ls: LanguageServer, title: str, cancel: Callable[[], object] | None = None) -> None:
        self._ls = ls
        self._title = title
        self._cancel = cancel
        self._newest: tuple[str, float | None] | None = None  # report
        self._token = str(uuid.uuid4())
        self._is_wanted = True
        self._creating: asyncio.Future[None] | None = None
        if get_capability(ls.client_capabilities, "window.work_done_progress"):
            self._creating = asyncio.ensure_future(self._create())

    @property
    def _is_open(self) -> bool:
        return self._token in self._ls.work_done_progress.tokens

    async def _create(self) -> None:
        await reply_or_none(self._ls.work_done_progress.create_async(self._token))
        self._creating = None
        if self._is_open and self._is_wanted:
            self._begin()
        if self._newest and self._is_wanted:
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
        self._is_wanted = False
        if self._creating is None and self._is_open:
            self._ls.work_done_progress.end(self._token, types.WorkDoneProgressEnd())
            self._ls.work_done_progress.tokens.pop(self._token)

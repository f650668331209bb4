"""pygls's protocol with this server's documents, and the client's progress display.

An error's message may quote the user's code, so only its type and its stack are logged.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage

from spd_lsp.lsp.documents import LspWorkspace
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import safe_traceback

Report = Callable[[str, float | None], None]  # a text, and the share that is done if it is known

log = logging.getLogger(__name__)
logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it logs whole messages, and so code


class SpdProtocol(LanguageServerProtocol):
    """pygls's protocol."""

    def __init__(self, server: Any, converter: Any) -> None:
        super().__init__(server, converter)
        for kind in (JsonRPCNotification, JsonRPCRequestMessage):  # of our own methods
            converter.register_structure_hook(kind, _untyped)

    def use_own_workspace(self) -> None:
        """Replace the workspace that pygls has made for `initialize`."""
        made = self.workspace
        folders = list(made.folders.values())
        sync = types.TextDocumentSyncKind.Incremental
        self._workspace = LspWorkspace(made.root_uri, sync, folders, made.position_encoding)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The typed message; a request that does not fit its type is answered with an error."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            log.warning("malformed message: %s", type(error.__cause__).__name__)
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    def _execute_handler(
        self, msg_id: str | int, handler: Any, callback: Any, args: Any = None, kwargs: Any = None
    ) -> None:
        """Run a handler, and forget its future once it is done: pygls keeps one for each notification."""

        def finish(future: Any) -> None:
            if not future.cancelled():  # `shutdown` cancels what is left while it goes through them
                self._request_futures.pop(msg_id, None)
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


@contextmanager
def work_done_progress(
    ls: LanguageServer, title: str, cancel: Callable[[], object] | None = None
) -> Iterator[Report]:
    """Show how work goes, if the client has a progress display. The user can `cancel`, if that is given.

    The work does not wait for the display: lsp-mode answers no request while its user waits for a reply.
    """
    if not get_capability(ls.client_capabilities, "window.work_done_progress"):
        yield lambda text, share: None
        return

    display = ls.work_done_progress
    token = str(uuid.uuid4())
    newest = "", 0.0 if cancel else None
    is_over = False

    def begin(answer: object) -> None:
        if is_over:
            return
        if cancel:
            display.tokens[token].add_done_callback(lambda future: future.cancelled() and cancel())
        # What can be cancelled shows a share from the start.
        percentage = 0 if cancel else None
        display.begin(token, types.WorkDoneProgressBegin(title, cancellable=bool(cancel), percentage=percentage))
        show(*newest)

    def show(text: str, share: float | None) -> None:
        nonlocal newest
        newest = text, share
        if token in display.tokens:
            percentage = None if share is None else round(share * 100)
            report = types.WorkDoneProgressReport(message=printable(text) or None, percentage=percentage)
            display.report(token, report)

    display.create(token, begin)
    try:
        yield show
    finally:
        is_over = True
        if display.tokens.pop(token, None):
            display.end(token, types.WorkDoneProgressEnd())

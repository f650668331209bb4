"""The language server: an editor's requests in, completion items out. The only file that knows LSP methods.

Each handler translates a message for the session in `server.py`, and its drafts into items for that editor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lsprotocol import types

from ngram_builders.registry.locks import is_running
from spd_lsp.lsp.completion_items import ACCEPTED, ItemCapabilities, details_of, inline_items, menu_items
from spd_lsp.lsp.completion_worker import CompletionWorker
from spd_lsp.lsp.configuring import configure, configure_first, pull_configuration, register_capabilities
from spd_lsp.lsp.documents import Change, file_path
from spd_lsp.lsp.options import SECTION
from spd_lsp.lsp.server import SpdServer
from spd_lsp.output.printable import printable
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.lsp.completion_worker import Load, Prepare, StandIn

_SNOOZE_SECONDS = 300

Handler = TypeVar("Handler", bound=Callable[..., Any])
_FEATURES: dict[str, tuple[Callable[..., Any], Any]] = {}


def _feature(method: str, options: Any = None) -> Callable[[Handler], Handler]:
    """Register a function as the handler of an LSP method in every server."""

    def register(handler: Handler) -> Handler:
        _FEATURES[method] = handler, options
        return handler

    return register


def create_server(
    load: Load,
    settings: Settings | None = None,
    fixed: Sequence[str] = (),
    *,
    stand_in: StandIn = lambda settings: None,
    prepare: Prepare = lambda settings, report: None,
) -> SpdServer:
    """A server without a transport. `load` may block, may raise UserError, and runs after `initialize`.

    `stand_in`, for models that take long to load: what answers until then. `prepare` fetches and checks a model,
    before the one that is loaded is let go.

    Editors cannot change `settings` that differ from the defaults, nor those named `fixed`.
    """
    worker = CompletionWorker(load, stand_in, prepare)
    server = SpdServer(worker, settings or Settings(), fixed)
    for method, (handler, options) in _FEATURES.items():
        server.feature(method, options)(handler)
    commands: dict[str, Callable[..., Any]] = {**server.indexer.commands, ACCEPTED: server.note_acceptance}
    for name, command in commands.items():
        server.command(name)(partial(command))  # pygls marks what it registers, which a method does not allow
    return server


@_feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["."]))
async def complete(ls: SpdServer, params: types.CompletionParams) -> types.CompletionList | None:
    """Offer the drafts as a menu; null if a newer request replaced this one."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    kind = params.context.trigger_kind if params.context else types.CompletionTriggerKind.Invoked
    cursor = document.offset_at_position(params.position)
    follows_typing = ls.settings.automatic_menu or not ls.client.ghost_text
    is_typed = document.is_requested_by_typing(cursor) and follows_typing
    explicit = kind == types.CompletionTriggerKind.Invoked and not is_typed
    if not explicit and not follows_typing:  # editors would accept an item with the Enter meant for a new line
        return types.CompletionList(is_incomplete=False, items=[])
    line = document.cursor_line(cursor)
    drafts = await ls.complete(document, ls.request_at(document, cursor, explicit=explicit))
    return None if drafts is None else types.CompletionList(follows_typing, menu_items(drafts, line, ls.client))


@_feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())  # announced only with options
async def ghost_text(ls: SpdServer, params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
    """Offer the drafts as ghost text; an empty list hides what is shown, null leaves it."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    explicit = params.context.trigger_kind != types.InlineCompletionTriggerKind.Automatic
    cursor = document.offset_at_position(params.position)
    request = ls.request_at(document, cursor, explicit=explicit)
    position = document.client_position_at_offset(cursor)
    span = types.Range(position, position)
    typed = ""
    if selected := params.context.selected_completion_info:
        request = document.with_selected(request, cursor, selected)
        span = selected.range
        typed = selected.text
    drafts = await ls.complete(document, request)
    return (
        None
        if drafts is None
        else types.InlineCompletionList(inline_items(drafts, span, typed, request.language or ""))
    )


@_feature(types.INITIALIZE)
def initialize(ls: SpdServer, params: types.InitializeParams) -> None:
    """Note what the client can do and wants."""
    ls.protocol.install_workspace()
    ls.client = ItemCapabilities.of(params)
    if params.process_id is not None and is_running(params.process_id):  # not through ssh or from a container
        ls.editor_process = params.process_id
    ls.configuration.set_options(params.initialization_options)


@_feature(types.INITIALIZED)
async def initialized(ls: SpdServer, params: types.InitializedParams) -> None:
    """Load the model with the client's configuration."""
    register_capabilities(ls)
    await configure_first(ls)


@_feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
async def did_change_configuration(ls: SpdServer, params: types.DidChangeConfigurationParams) -> None:
    """Use the new configuration."""
    if not await pull_configuration(ls):
        settings = params.settings
        ls.configuration.set_configuration(settings.get(SECTION) if isinstance(settings, dict) else None)
    await configure(ls)


@_feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
def did_change_workspace_folders(ls: SpdServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Index the new folders."""
    ls.index_folders()


@_feature("spd-lsp/options")
async def did_change_options(ls: SpdServer, params: Any) -> None:
    """Use new `initializationOptions`."""
    ls.configuration.set_options(params)
    await configure(ls)


@_feature("spd-lsp/status")
async def status(ls: SpdServer, params: Any) -> dict[str, Any]:
    """What a status bar shows, and of a document if the client names one."""
    model = (ls.worker.loaded_settings or ls.settings).model
    state: dict[str, Any] = {"busy": ls.requests.busy, "settings": ls.settings, "indexing": ls.indexer.progress}
    record = ls.status.as_json(**state, model=model)
    record |= {"snoozing": ls.snooze_seconds, "automatic": ls.settings.automatic}
    record["usage"] = ls.usage.summary(ls.data_folder)
    if document := ls.workspace.find_document(params):
        indexed = ls.indexer.has_table(document.file)
        why = "" if indexed else ls.indexer.reason_not_indexed(document.file)
        record["tables"] = [printable(name) for name in await ls.tables_for(document)]
        record["documentReason"] = printable(ls.exclusion(document))
        record |= {"indexed": indexed, "notIndexedReason": printable(why)}
    return record


@_feature("spd-lsp/snooze")
def snooze(ls: SpdServer, params: Any) -> int:
    """Offer nothing while someone types for five minutes, or again if it snoozes; for how many seconds."""
    ls.snoozes_until = 0.0 if ls.snooze_seconds else time.monotonic() + _SNOOZE_SECONDS
    return ls.snooze_seconds


@_feature("spd-lsp/drafts")
async def all_drafts(ls: SpdServer, params: Any) -> list[dict[str, str]]:
    """All drafts at a cursor: what to insert, that with the word that it completes, and its details."""
    place = ls.workspace.find_cursor(params)
    if place is None:
        return []
    word = place[0].cursor_line(place[1]).word
    drafts = await ls.complete(place[0], ls.request_at(*place, explicit=True))
    return [{"text": one.text, "label": word + one.text, "details": details_of(one)} for one in drafts or []]


@_feature("textDocument/copilotInlineEdit")
async def next_edits(ls: SpdServer, params: Any) -> dict[str, Any]:
    """Propose places where the edit just made is wanted, too: one, or as many as `context.limit` allows.

    With a limit they may be in other documents, and in imported files that are not open, whose version is null.
    """
    document = ls.workspace.find_document(params)
    if document is None or not ls.settings.next_edits or ls.exclusion(document):
        return {"edits": []}
    context = params.get("context")
    limit = context.get("limit") if isinstance(context, dict) else None
    most = limit if isinstance(limit, int) and limit > 0 else None
    others = [one for one in ls.workspace.documents if not ls.exclusion(one)]
    return {"edits": await ls.next_edits.edits(document, others, most, ls.imported_documents)}


@_feature("spd-lsp/cursor")
def did_move_cursor(ls: SpdServer, params: Any) -> None:
    """Prefetch where the cursor rests, as in a document that was opened or switched to."""
    if cursor := ls.workspace.find_cursor(params):
        ls.prefetch(*cursor)


@_feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def did_change_watched_files(ls: SpdServer, params: types.DidChangeWatchedFilesParams) -> None:
    """Index files that another program changed."""
    ls.worker.changes.mark_files_changed(filter(None, (file_path(change.uri) for change in params.changes)))
    ls.index_changes()


@_feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
@_feature(types.TEXT_DOCUMENT_DID_OPEN)
def did_open(ls: SpdServer, params: object) -> None:
    """Index the document or notebook."""
    ls.index_changes()
    ls.next_edits.see(ls.workspace.documents)


@_feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
@_feature(types.TEXT_DOCUMENT_DID_CHANGE)
def did_change(ls: SpdServer, params: Change) -> None:
    """Prefetch at the edit of a document, or of a notebook's cell."""
    ls.next_edits.see(ls.workspace.documents)
    for document in ls.workspace.edited_documents(params):
        request = ls.request_at(document, document.edited_at)
        ls.requests.note_edit(request.uri, request)
        ls.prefetch(document, document.edited_at)


@_feature(types.TEXT_DOCUMENT_DID_SAVE, types.SaveOptions(include_text=True))
def did_save(ls: SpdServer, params: types.DidSaveTextDocumentParams) -> None:
    """Index the file as saved. Its text is compared with ours, which may have missed an edit."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    if (
        params.text is not None
        and document.is_open
        and (document.is_out_of_step or params.text != document.source)
    ):
        document.apply_change(types.TextDocumentContentChangeWholeDocument(params.text))
    ls.worker.changes.mark_saved(document.uri)
    ls.index_changes()


@_feature(types.TEXT_DOCUMENT_DID_CLOSE)
def did_close(ls: SpdServer, params: types.DidCloseTextDocumentParams) -> None:
    """Drop the document's request and forget it."""
    ls.forget_documents([params.text_document.uri])


@_feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
def did_close_notebook(ls: SpdServer, params: types.DidCloseNotebookDocumentParams) -> None:
    """Likewise for all of its cells."""
    ls.forget_documents([cell.uri for cell in params.cell_text_documents])


@_feature(types.SHUTDOWN)
def shutdown(ls: SpdServer, params: None) -> None:
    """Stop all work before the client leaves."""
    ls.cancel_all()

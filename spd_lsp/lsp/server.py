"""The language server: an editor's requests in, completion items out. The only file that knows LSP methods.

Each handler translates a message for the session in `session.py`, and its drafts into items for that editor. Below
the handlers: how a session is configured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lsprotocol import types
from pygls.capabilities import get_capability

from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION
from spd_lsp.completion.exclusions import OFF
from spd_lsp.lsp.completion_items import ACCEPTED, ItemCapabilities, details_of, inline_items, menu_items
from spd_lsp.lsp.documents import file_path
from spd_lsp.lsp.loading import ModelLoader, Status
from spd_lsp.lsp.options import SECTION, needs_reload
from spd_lsp.lsp.protocol import work_done_progress
from spd_lsp.lsp.session import Session
from spd_lsp.lsp.worker import Worker
from spd_lsp.output.printable import printable
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.lsp.loading import Load

_SNOOZE_SECONDS = 300
_SOURCE_FILES = f"**/*.{{{','.join(LANGUAGE_BY_EXTENSION)}}}"

Handler = TypeVar("Handler", bound=Callable[..., Any])
_FEATURES: dict[str, tuple[Callable[..., Any], Any]] = {}


def _feature(method: str, options: Any = None) -> Callable[[Handler], Handler]:
    """Register a function as the handler of an LSP method in every server."""

    def register(handler: Handler) -> Handler:
        _FEATURES[method] = handler, options
        return handler

    return register


def create_server(load: Load, settings: Settings | None = None, fixed: Collection[str] = ()) -> Session:
    """A server without a transport. `load` may block, may raise UserError, and runs after `initialize`.

    Editors cannot change those of the `settings` that are named `fixed`.
    """
    worker = Worker()
    server = Session(worker, ModelLoader(worker, load), settings or Settings(), fixed)
    for method, (handler, options) in _FEATURES.items():
        server.feature(method, options)(handler)
    commands: dict[str, Callable[..., Any]] = {**server.indexer.commands, ACCEPTED: server.note_acceptance}
    for name, command in commands.items():
        server.command(name)(partial(command))  # pygls marks what it registers, which a method does not allow
    return server


@_feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["."]))
async def complete(ls: Session, params: types.CompletionParams) -> types.CompletionList | None:
    """Offer the drafts as a menu; null if a newer request replaced this one."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    kind = params.context.trigger_kind if params.context else types.CompletionTriggerKind.Invoked
    cursor = document.offset_at_position(params.position)
    # Helix and Emacs say by no trigger kind that they ask because of a key: without the clock, `automatic: false`
    # would have no effect there.
    follows_typing = ls.settings.automatic_menu or not ls.client.ghost_text
    is_typed = document.is_requested_by_typing(cursor) and follows_typing
    explicit = kind == types.CompletionTriggerKind.Invoked and not is_typed
    if not explicit and not follows_typing:  # editors would accept an item with the Enter meant for a new line
        return types.CompletionList(is_incomplete=False, items=[])
    line = document.cursor_line(cursor)
    drafts = await ls.complete(document, ls.workspace.request_at(document, cursor, explicit=explicit))
    return None if drafts is None else types.CompletionList(follows_typing, menu_items(drafts, line, ls.client))


@_feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())  # announced only with options
async def ghost_text(ls: Session, params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
    """Offer the drafts as ghost text; an empty list hides what is shown, null leaves it."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    explicit = params.context.trigger_kind != types.InlineCompletionTriggerKind.Automatic
    cursor = document.offset_at_position(params.position)
    request = ls.workspace.request_at(document, cursor, explicit=explicit)
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
def initialize(ls: Session, params: types.InitializeParams) -> None:
    """Note what the client can do and wants."""
    ls.protocol.use_own_workspace()
    ls.client = ItemCapabilities.of(params)
    ls.configuration.set_options(params.initialization_options)


@_feature(types.INITIALIZED)
async def initialized(ls: Session, params: types.InitializedParams) -> None:
    """Load the model with the client's options; its configuration is applied when it comes."""
    _register_capabilities(ls)
    await asyncio.gather(_configure(ls), _pull_configuration(ls))


@_feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
async def did_change_configuration(ls: Session, params: types.DidChangeConfigurationParams) -> None:
    """Use the new configuration, which clients send if they cannot be asked for it."""
    if not get_capability(ls.client_capabilities, "workspace.configuration"):
        settings = params.settings
        ls.configuration.set_configuration(settings.get(SECTION) if isinstance(settings, dict) else None)
        await _configure(ls)
    await _pull_configuration(ls)


@_feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
def did_change_workspace_folders(ls: Session, params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Index the new folders."""
    ls.index_folders()


@_feature("spd-lsp/options")
async def did_change_options(ls: Session, params: Any) -> None:
    """Use new `initializationOptions`."""
    ls.configuration.set_options(params)
    await _configure(ls)


@_feature("spd-lsp/status")
async def status(ls: Session, params: Any) -> dict[str, Any]:
    """The state that a status bar shows, with that of a document if the client names one."""
    model = (ls.loader.loaded or ls.settings).model
    record = ls.status.as_json(
        busy=ls.running is not None, settings=ls.settings, model=model, indexing=ls.indexer.progress
    )
    record |= {"snoozing": ls.snooze_seconds, "automatic": ls.settings.automatic}
    record["usage"] = ls.usage.summary(ls.data_folder)
    if named := (params or {}).get("textDocument"):
        document = ls.workspace.get_text_document(named["uri"])
        why = ls.indexer.why_not_indexed(document.file)
        reason = ls.exclusion(document)
        tables = [] if reason else ls.indexer.tables_for(document.file, document.language_id)
        record |= {"tables": list(map(printable, tables)), "documentReason": printable(reason)}
        record |= {"indexed": None if why is None else not why, "notIndexedReason": printable(why or "")}
    return record


@_feature("spd-lsp/snooze")
def snooze(ls: Session, params: Any) -> int:
    """Begin or end a snooze of five minutes, without completions while someone types; the seconds left."""
    ls.snoozes_until = 0.0 if ls.snooze_seconds else time.monotonic() + _SNOOZE_SECONDS
    return ls.snooze_seconds


@_feature("spd-lsp/drafts")
async def all_drafts(ls: Session, params: Any) -> list[dict[str, str]]:
    """All drafts at a cursor: what to insert, that with the word that it completes, and its details."""
    document, cursor = ls.workspace.find_cursor(params)
    word = document.cursor_line(cursor).word
    drafts = await ls.complete(document, ls.workspace.request_at(document, cursor, explicit=True))
    return [{"text": one.text, "label": word + one.text, "details": details_of(one)} for one in drafts or []]


@_feature("textDocument/copilotInlineEdit")
def next_edits(ls: Session, params: Any) -> dict[str, Any]:
    """Propose the edit just made at other places of the document, at most `context.limit` of them or one."""
    document = ls.workspace.get_text_document(params["textDocument"]["uri"])
    if document.uri != ls.next_edits.edited or document.source is not ls.next_edits.texts.get(document.uri):
        return {"edits": []}
    version = {"uri": document.uri, "version": document.version}
    edits = []
    for start, end, text in ls.next_edits.proposals()[: params.get("context", {}).get("limit", 1)]:
        span = types.Range(*map(document.client_position_at_offset, (start, end)))
        edits.append({"text": text, "range": span, "textDocument": version})
    return {"edits": edits}


@_feature("spd-lsp/cursor")
def did_move_cursor(ls: Session, params: Any) -> None:
    """Prefetch where the cursor rests, as in a document that was opened or switched to."""
    ls.prefetch(*ls.workspace.find_cursor(params))


@_feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def did_change_watched_files(ls: Session, params: types.DidChangeWatchedFilesParams) -> None:
    """Index files that another program changed."""
    ls.worker.submit(
        ls.worker.update_files, [path for change in params.changes if (path := file_path(change.uri))]
    )
    ls.index_changes()


@_feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
@_feature(types.TEXT_DOCUMENT_DID_OPEN)
def did_open(ls: Session, params: object) -> None:
    """Index the document or notebook."""
    ls.index_changes()
    ls.note_edits()


@_feature(types.TEXT_DOCUMENT_DID_CHANGE)
def did_change(ls: Session, params: types.DidChangeTextDocumentParams) -> None:
    """Prefetch at the edit."""
    ls.note_edits()
    ls.note_edit(ls.workspace.get_text_document(params.text_document.uri))


@_feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
def did_change_notebook(ls: Session, params: types.DidChangeNotebookDocumentParams) -> None:
    """Prefetch at the edits of its cells."""
    ls.note_edits()
    for edited in (params.change.cells and params.change.cells.text_content) or ():
        ls.note_edit(ls.workspace.get_text_document(edited.document.uri))


@_feature(types.TEXT_DOCUMENT_DID_SAVE)
def did_save(ls: Session, params: types.DidSaveTextDocumentParams) -> None:
    """Index the file as saved."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    if document.is_open and document.file:
        ls.worker.submit(ls.worker.update_files, [document.file])
    ls.index_changes()


@_feature(types.TEXT_DOCUMENT_DID_CLOSE)
def did_close(ls: Session, params: types.DidCloseTextDocumentParams) -> None:
    """Drop the document's request and forget it."""
    ls.forget_documents([params.text_document.uri])


@_feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
def did_close_notebook(ls: Session, params: types.DidCloseNotebookDocumentParams) -> None:
    """Drop the requests of all its cells and forget them."""
    ls.forget_documents([cell.uri for cell in params.cell_text_documents])


@_feature(types.SHUTDOWN)
def shutdown(ls: Session, params: None) -> None:
    """Stop all work before the client leaves."""
    ls.has_shut_down = True
    ls.loader.cancel()
    ls.stop()


def _register_capabilities(ls: Session) -> None:
    """Register for changes of settings and of files on the disk, with clients that support that."""
    watchers = [{"globPattern": _SOURCE_FILES}]
    registrations = [
        types.Registration(method, method, options)
        for method, capability, options in (
            (types.WORKSPACE_DID_CHANGE_CONFIGURATION, "did_change_configuration", {"section": SECTION}),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, "did_change_watched_files", {"watchers": watchers}),
        )
        if get_capability(ls.client_capabilities, f"workspace.{capability}.dynamic_registration")
    ]
    if registrations:
        ls.client_register_capability(types.RegistrationParams(registrations))


async def _pull_configuration(ls: Session) -> None:
    """Request our section of the configuration from a client that supports that, and apply it."""
    if get_capability(ls.client_capabilities, "workspace.configuration"):
        params = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
        sections = await ls.workspace_configuration_async(params)
        ls.configuration.set_configuration(sections[0] if sections else None)
        await _configure(ls)


async def _configure(ls: Session) -> None:
    """Apply changed settings; reload the model only if they need another one, or loading had failed."""
    before = ls.settings
    ls.settings = ls.configuration.merged()
    for problem in ls.configuration.take_problems():
        ls.show_once(problem, types.MessageType.Warning)
    failed = ls.status.kind == "error" and ls.settings != before
    if not ls.settings.enabled and ls.loader.tried is None:
        ls.status = Status("normal", OFF)
    elif needs_reload(ls.loader.tried, ls.settings) or failed:
        await _reload(ls)
    elif ls.settings != before:
        ls.forget_results()
        ls.worker.submit(ls.worker.apply_settings, ls.settings)
    ls.index_folders()


async def _reload(ls: Session) -> None:
    """Load the model, and show how that goes."""
    ls.forget_results()
    ls.status = Status()
    with work_done_progress(ls, "spd-lsp") as show:

        def report(text: str) -> None:
            if ls.status.kind == "loading":
                ls.status.message = text
            show(text, None)

        status = await ls.loader.load(ls.settings, report)
    if status is not None:
        ls.status = status
        ls.show_once(status.problem)
        ls.show_once(status.message if status.kind == "error" else "")
        ls.recent.drop()  # answers of the model before it
        if ls.settings != ls.loader.tried:  # changed meanwhile
            ls.worker.submit(ls.worker.apply_settings, ls.settings)
        ls.index_changes()
        if request := ls.read_at:  # while there was no model, or another one
            ls.plan(0.0, partial(ls.worker.run, ls.worker.prefetch, request))
            ls.read_at = request

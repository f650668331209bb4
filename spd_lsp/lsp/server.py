"""The language server: an editor's requests in, completion items out. The only file that knows LSP methods.

In: documents, positions and settings from one editor. Out: the completer's drafts, as items for that editor. The
event loop runs here; everything that computes runs in the session's `CompletionWorker`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lsprotocol import types
from pygls.exceptions import FeatureRequestError
from pygls.lsp.server import LanguageServer

from spd_lsp import __version__
from spd_lsp.completion.typed_along import CompletionRequest, RecentResults, merge_previous, typed_since
from spd_lsp.lsp.client_requests import pull_configuration, register_capabilities
from spd_lsp.lsp.completion_items import ItemCapabilities, inline_items, menu_items
from spd_lsp.lsp.completion_worker import CompletionWorker, IdleWorker, Prefetcher
from spd_lsp.lsp.documents import Change, LspDocument, LspWorkspace, file_path
from spd_lsp.lsp.indexing.folder_indexer import FolderIndexer
from spd_lsp.lsp.options import SECTION, Configuration, needs_reload, with_model_of
from spd_lsp.lsp.protocol import SpdProtocol, safe_traceback, user_message, work_done_progress
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason, RequestScheduler
from spd_lsp.lsp.status import COMPUTING, LOADING, MAY_HOLD_SECRETS, OFF, READY, Status, document_status
from spd_lsp.lsp.transport.editor_process import local_process
from spd_lsp.printable import printable
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.offer import Completion, CompletionResult
    from spd_lsp.lsp.completion_worker import Load

_MAX_WAIT_FOR_OTHERS = 0.05  # seconds, while the first draft is typed along with; the next key comes soon
MAX_WAIT_FOR_CONFIGURATION = 0.5  # seconds; some clients answer no request
MAX_WAIT_FOR_MODEL = 5.0  # seconds; Emacs gives up on a request after ten

log = logging.getLogger(__name__)


class SpdServer(LanguageServer):
    """One editor's session."""

    protocol: SpdProtocol
    requests: RequestScheduler[CompletionRequest, CompletionResult | None]

    def __init__(
        self, load: Load, settings: Settings, fixed: Sequence[str] = (), *, may_index: bool = True
    ) -> None:
        notebooks = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])
        super().__init__("spd-lsp", __version__, notebook_document_sync=notebooks, protocol_cls=SpdProtocol)
        self.settings = settings
        self.configuration = Configuration(settings, fixed)
        self.worker = CompletionWorker(load)
        self.recent = RecentResults()
        self.requests = RequestScheduler(self.worker.executor, typed_since, self.keep)
        self.idle_worker = IdleWorker(self.worker.executor, lambda: self.requests.busy, self.worker.run_idle_work)
        self.prefetcher = Prefetcher(self.worker, self.requests, self.recent)
        self.indexer = FolderIndexer(self, self.worker.look_for_tables, may_index)
        self.client = ItemCapabilities()
        self.editor_process: int | None = None  # if it runs on this machine
        self.status = Status()
        self.model_settings: Settings | None = None  # those of the last attempt to load a model
        self.loading = CancellationToken()
        self.loaded = asyncio.Event()
        self.shown_messages: set[str] = set()

    @property
    def workspace(self) -> LspWorkspace:
        """The open documents."""
        return cast(LspWorkspace, super().workspace)

    async def complete(self, document: LspDocument, request: CompletionRequest) -> list[Completion] | None:
        """Return the drafts for a request, best first; None if a newer request replaced it."""
        if reason := await self.why_not(document, request):
            self.status.reason = reason
            return []
        self.index_changes()
        known = None if request.explicit else self.recent.find(request, self.worker.is_current)
        if known and (document.shrank or not known.needs_refresh):
            return self.note(request, known)
        if document.shrank and not request.explicit:
            self.status.reason = "text was deleted"
            return []
        request = request.joined_with(self.requests.running(request.uri))
        self.prefetcher.stop(request)
        self.status.reason = COMPUTING
        try:
            result = await asyncio.wait_for(self.compute(request), self.patience(known))
        except asyncio.TimeoutError:
            result = known
        except Cancelled:
            return None
        except Exception as error:
            self.show_once(user_message(error, "completion"))
            return []
        return self.note(request, result) if result else []

    async def compute(self, request: CompletionRequest) -> CompletionResult | None:
        """Return what a running computation of an earlier request leaves for this one, or else its own result."""
        await self.requests.finish_earlier(request.uri, request)
        left = None if request.explicit else self.recent.find(request, self.worker.is_current)
        if left and not left.needs_refresh:
            return left
        return await self.requests.run(request.uri, request, partial(self.worker.complete, request))

    def patience(self, known: CompletionResult | None) -> float | None:
        """Seconds to wait for what comes behind the first draft that is left; None: for ever, as there is none."""
        if known is None or not known.keeps_first:
            return None
        return _MAX_WAIT_FOR_OTHERS if self.status.seconds < _MAX_WAIT_FOR_OTHERS else 0.001

    def keep(self, request: CompletionRequest, result: CompletionResult | None) -> CompletionResult | None:
        """Keep a result, with what is left of earlier ones, whoever still waits for it."""
        left = None if request.explicit else self.recent.find(request, self.worker.is_current)
        return result and self.recent.add(request, merge_previous(result, left))

    def note(self, request: CompletionRequest, result: CompletionResult) -> list[Completion]:
        """Return a result's drafts; its reason, cost and problems are for the user to see."""
        self.worker.shown = request, result
        self.prefetcher.complete_ahead(request, result)
        self.status.reason, self.status.last = result.reason, result
        self.status.seconds = result.seconds or self.status.seconds
        for problem in result.problems:
            self.show_once(problem, types.MessageType.Warning)
        return result.completions

    def request_at(self, document: LspDocument, cursor: int, *, explicit: bool = False) -> CompletionRequest:
        """A request at an offset in a document."""
        return self.workspace.request_at(document, cursor, self.settings.disabled_languages, explicit=explicit)

    async def why_not(self, document: LspDocument, request: CompletionRequest) -> str:
        """Why a request gets no completions, or an empty string. An explicit one waits for the model."""
        if request.explicit and self.status.kind == "loading" and not self.exclusion(document):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.loaded.wait(), MAX_WAIT_FOR_MODEL)
        return self.exclusion(document) or (LOADING if self.status.kind == "loading" else "")

    def exclusion(self, document: LspDocument) -> str:
        """Why a document gets no completions whatever is typed in it, or an empty string."""
        if not document.is_open:
            return "the document is not open"
        if not self.settings.enabled:
            return OFF
        if document.language_id in self.settings.disabled_languages:
            return f"{OFF} for {document.language_id}"
        if document.may_hold_secrets:
            return MAY_HOLD_SECRETS
        return self.status.message if self.status.kind == "error" else ""

    def index_changes(self) -> None:
        """Queue the documents that changed for the live index, and have the worker look at them when idle."""
        if self.settings.enabled:
            self.worker.changes.update(self.workspace.indexable(self.settings.disabled_languages))
            self.idle_worker.wake()

    def index_folders(self) -> None:
        """Index the open folders in the background, once the model is loaded."""
        self.indexer.update(self.workspace.folder_uris, self.settings, self.worker.fingerprint)

    def prefetch(self, document: LspDocument, cursor: int) -> None:
        """Look for work, and read the prompt at a place, unless a request comes first."""
        self.idle_worker.wake()
        if not self.exclusion(document):
            self.prefetcher.read_prompt(self.request_at(document, cursor))

    def forget_documents(self, uris: Sequence[str]) -> None:
        """Drop what runs and what was answered for closed documents, and no longer count them."""
        for uri in uris:
            self.requests.drop(uri, CancelReason.CLIENT)
            self.recent.drop(uri)
        self.index_changes()

    async def configure(self) -> None:
        """Apply changed settings; reload the model only if they need another one, or loading had failed."""
        before, self.settings = self.settings, self.configuration.merged()
        for problem in self.configuration.take_problems():
            self.show_once(problem, types.MessageType.Warning)
        failed = self.status.kind == "error" and self.settings != before
        if not self.settings.enabled and self.model_settings is None:
            self.status = Status("normal", OFF)
        elif needs_reload(self.model_settings, self.settings) or failed:
            await self.reload()
        elif self.settings != before:
            self.forget_results()
            self.worker.executor.submit(self.worker.apply_settings, self.settings)
        self.index_folders()

    async def reload(self) -> None:
        """Load the model, or else keep the previous one; a newer call cancels this one."""
        self.loading.cancel(CancelReason.SUPERSEDED)
        self.loading = cancel = CancellationToken()
        self.model_settings = self.settings
        self.forget_results()
        self.status = Status("loading", LOADING)
        self.loaded.clear()
        with work_done_progress(self, "spd-lsp", note=self.status.note_progress) as report:
            problem = await self.worker.load(self.settings, report, cancel)
            if problem and cancel.reason is None and (before := self.worker.loaded_settings):
                self.show_once(f"{problem}; still using the previous model")
                problem = await self.worker.load(with_model_of(before, self.settings), report, cancel)
        if cancel.reason is None:
            self.status = Status("error", problem) if problem else Status("normal", READY)
            self.show_once(problem)
            self.worker.changes.reset()
            self.index_changes()
            self.loaded.set()

    def forget_results(self) -> None:
        """Stop what runs and forget what was answered: the settings are others."""
        self.requests.drop_all(CancelReason.SUPERSEDED)
        self.recent.clear()

    def show_once(self, text: str, kind: types.MessageType = types.MessageType.Error) -> None:
        """Show the user a message, unless it was shown before."""
        if text and text not in self.shown_messages:
            self.shown_messages.add(text)
            self.window_show_message(types.ShowMessageParams(kind, f"spd-lsp: {printable(text)}"))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log what pygls would show as a popup; failed requests have been answered already."""
        if source is not FeatureRequestError:
            log.error("failed to handle a message: %s", safe_traceback(error))

    def cancel_all(self) -> None:
        """Stop loading and completing within one step."""
        self.loading.cancel(CancelReason.SHUTDOWN)
        self.requests.drop_all(CancelReason.SHUTDOWN)

    def shutdown(self) -> None:
        """Stop all work and free the model: the process may go on to serve other sessions."""
        self.cancel_all()
        self.indexer.stop()
        self.idle_worker.stop()
        self.prefetcher.stop()
        self.worker.close()
        super().shutdown()  # type: ignore[no-untyped-call]


Handler = TypeVar("Handler", bound=Callable[..., Any])
_FEATURES: dict[str, tuple[Callable[..., Any], Any]] = {}


def _feature(method: str, options: Any = None) -> Callable[[Handler], Handler]:
    """Register a function as the handler of an LSP method in every server."""

    def register(handler: Handler) -> Handler:
        _FEATURES[method] = handler, options
        return handler

    return register


def create_server(
    load: Load, settings: Settings | None = None, fixed: Sequence[str] = (), *, may_index: bool = True
) -> SpdServer:
    """A server without a transport. `load` may block, may raise UserError, and runs after `initialize`.

    Editors cannot change `settings` that differ from the defaults, nor those named `fixed`. may_index: whether the
    folders that the editor opens may be read and indexed.
    """
    server = SpdServer(load, settings or Settings(), fixed, may_index=may_index)
    for method, (handler, options) in _FEATURES.items():
        server.feature(method, options)(handler)
    for name, command in server.indexer.commands.items():
        server.command(name)(partial(command))  # pygls marks what it registers, which a method does not allow
    return server


@_feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["."]))
async def complete(ls: SpdServer, params: types.CompletionParams) -> types.CompletionList | None:
    """Offer the drafts as a menu; null if a newer request replaced this one."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    kind = params.context.trigger_kind if params.context else types.CompletionTriggerKind.Invoked
    cursor = document.offset_at_position(params.position)
    explicit = not document.is_requested_by_typing(cursor) and kind == types.CompletionTriggerKind.Invoked
    follows_typing = ls.settings.automatic_menu or not ls.client.ghost_text
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
    return None if drafts is None else types.InlineCompletionList(inline_items(drafts, span, typed))


@_feature(types.INITIALIZE)
def initialize(ls: SpdServer, params: types.InitializeParams) -> None:
    """Note what the client can do and wants."""
    ls.protocol.install_workspace()
    ls.client, ls.editor_process = ItemCapabilities.of(params), local_process(params.process_id)
    ls.configuration.set_options(params.initialization_options)


@_feature(types.INITIALIZED)
async def initialized(ls: SpdServer, params: types.InitializedParams) -> None:
    """Load the model with the client's configuration; what comes late is applied when it comes."""
    register_capabilities(ls)
    pulling = asyncio.ensure_future(pull_configuration(ls, ls.configuration))
    await asyncio.wait([pulling], timeout=MAX_WAIT_FOR_CONFIGURATION)
    loading = asyncio.ensure_future(ls.configure())
    await pulling
    await asyncio.gather(loading, ls.configure())


@_feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
async def did_change_configuration(ls: SpdServer, params: types.DidChangeConfigurationParams) -> None:
    """Use the new configuration."""
    if not await pull_configuration(ls, ls.configuration):
        settings = params.settings
        ls.configuration.set_configuration(settings.get(SECTION) if isinstance(settings, dict) else None)
    await ls.configure()


@_feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
def did_change_workspace_folders(ls: SpdServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Index the new folders."""
    ls.index_folders()


@_feature("spd-lsp/options")
async def did_change_options(ls: SpdServer, params: Any) -> None:
    """Use new `initializationOptions`."""
    ls.configuration.set_options(params)
    await ls.configure()


@_feature("spd-lsp/status")
def status(ls: SpdServer, params: Any) -> dict[str, Any]:
    """What a status bar shows, and of a document if the client names one."""
    record = ls.status.as_json(busy=ls.requests.busy, settings=ls.settings, indexing=ls.indexer.progress)
    if document := ls.workspace.find_document(params):
        why = ls.indexer.reason_not_indexed(document.file)
        record |= document_status(ls.exclusion(document), ls.indexer.has_table(document.file), why)
    return record


@_feature("spd-lsp/cursor")
def did_move_cursor(ls: SpdServer, params: Any) -> None:
    """Prefetch where the cursor rests, as in a document that was opened or switched to."""
    if place := ls.workspace.find_place(params):
        ls.prefetch(*place)


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


@_feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
@_feature(types.TEXT_DOCUMENT_DID_CHANGE)
def did_change(ls: SpdServer, params: Change) -> None:
    """Prefetch at the edit of a document, or of a notebook's cell."""
    for document in ls.workspace.edited_documents(params):
        request = ls.request_at(document, document.edited_at)
        ls.requests.note_edit(request.uri, request)
        ls.prefetch(document, document.edited_at)


@_feature(types.TEXT_DOCUMENT_DID_SAVE)
def did_save(ls: SpdServer, params: types.DidSaveTextDocumentParams) -> None:
    """Index the file as saved."""
    document = ls.workspace.get_text_document(params.text_document.uri)
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

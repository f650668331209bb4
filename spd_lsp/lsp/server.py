"""The language server: editors' requests in, completions out. The only file that knows LSP methods.

In: documents, positions and settings from one editor. Out: what the completer says, shaped for that editor. Knows
nothing of models: `load` brings a completer, and both run in one worker thread while the event loop stays free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import FeatureRequestError
from pygls.lsp.server import LanguageServer

from ngram_builders.errors import UserError
from spd_lsp import __version__
from spd_lsp.lsp.completion_items import Client, inline_items, menu_items
from spd_lsp.lsp.documents import LspDocument, place_of
from spd_lsp.lsp.exclusions import refusal
from spd_lsp.lsp.idle_worker import Upkeep
from spd_lsp.lsp.options import SECTION, Configuration, needs_reload, with_model_of
from spd_lsp.lsp.prefetch import ReadAhead
from spd_lsp.lsp.protocol import SpdProtocol, progress, reply_to, trail
from spd_lsp.lsp.request import Question, counted, place_in, question, with_selected
from spd_lsp.lsp.request_scheduler import Cancel, Cancelled, LatestWins, Reason
from spd_lsp.lsp.reuse import rest_of
from spd_lsp.lsp.status import LOADING, OFF, READY, Status
from spd_lsp.lsp.transport.editor_process import visible
from spd_lsp.ngrams.document_changes import Inbox
from spd_lsp.printable import printable
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Answer, Completer
    from spd_lsp.completion.postprocess import Completion

    Report = Callable[[str], None]
    Load = Callable[[Settings, Report], Completer]


LONGEST_PAUSE = 0.05  # seconds
LONGEST_WAIT = 5.0  # seconds; Emacs gives a request up after ten

log = logging.getLogger(__name__)


class SpdServer(LanguageServer):
    """One editor's session: its documents are in the protocol, the model is in the worker thread."""

    protocol: SpdProtocol

    def __init__(self, load: Load, given: Settings, fixed: Sequence[str] = ()) -> None:
        super().__init__("spd-lsp", __version__, protocol_cls=SpdProtocol)
        self.load = load
        self.settings = given
        self.opened: Settings | None = None  # what the completer was to be made with
        self.worked: Settings | None = None  # what one was made with last
        self.configuration = Configuration(given, fixed)
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="spd-lsp")
        self.latest: LatestWins[Question, Answer | None] = LatestWins(self.worker)
        self.loading = Cancel()
        self.loaded = asyncio.Event()
        self.completer: Completer | None = None
        self.inbox = Inbox()
        self.upkeep = Upkeep(self.worker, lambda: self.latest.busy, self._tidy)
        self.ahead = ReadAhead(self.worker, lambda: self.latest.busy, self._read_ahead)
        self.client = Client()
        self.editor: int | None = None  # its process, if that is on this machine
        self.status = Status()
        self.shown: set[str] = set()

    async def configure(self) -> None:
        """Read the options again; load again only what was made with others, or had failed to load."""
        before = self.settings
        self.settings = self.configuration.merged()
        for problem in self.configuration.take_problems():
            self.show_once(problem, types.MessageType.Warning)
        if not self.settings.enabled and self.opened is None:
            self.status = Status("normal", OFF)
        elif needs_reload(self.opened, self.settings) or (self.status.kind == "error" and self.settings != before):
            await self.reload()
        elif self.settings != before:
            self.adopt()

    async def reload(self) -> None:
        """Load the model that the settings name; a newer call ends this one at its next report."""
        self.loading.cancel(Reason.SUPERSEDED)
        self.loading = cancel = Cancel()
        self.opened = self.settings
        self.latest.drop_all(Reason.SUPERSEDED)
        self.status = Status("loading", LOADING)
        self.loaded.clear()
        loop = asyncio.get_running_loop()
        async with progress(self, "spd-lsp") as show:

            def report(text: str) -> None:
                cancel.check()
                loop.call_soon_threadsafe(show, text)

            problem = await loop.run_in_executor(self.worker, self._load, self.settings, report)
            if problem and cancel.reason is None and self.worked:
                self.show_once(f"{problem}; completions go on with what was there before")
                problem = await loop.run_in_executor(
                    self.worker, self._load, with_model_of(self.worked, self.settings), report
                )
        if cancel.reason is None:
            self.status = Status("error", problem) if problem else Status("normal", READY)
            self.show_once(problem)
            self.inbox.forget()
            self.look_around()
            self.loaded.set()

    def _load(self, settings: Settings, report: Report) -> str:
        """In the worker: replace the completer; what went wrong, or nothing."""
        try:
            report(LOADING)
            self.completer = None  # two models at once may not fit into memory
            completer = self.load(settings, report)
            self.loading.check()  # a session that ended meanwhile has no use for it
            self.completer, self.worked = completer, settings
        except Cancelled as stopped:
            return str(stopped)
        except UserError as error:
            return str(error)
        except Exception as error:
            log.error("loading failed: %s", trail(error))
            return f"the model could not be loaded ({type(error).__name__}); the server's log says where"
        return ""

    def adopt(self) -> None:
        """Have the next request answered as the settings are now, by the model that is there or being loaded."""
        self.latest.drop_all(Reason.SUPERSEDED)
        self.worker.submit(self._adopt, self.settings)

    def _adopt(self, settings: Settings) -> None:
        """In the worker, which alone may touch the completer."""
        if (completer := self.completer) is not None:
            completer.adopt(settings)

    async def drafts(self, document: LspDocument, question: Question, automatic: bool) -> list[Completion] | None:
        """Completions, best first; None if a newer request took this one's place."""
        objection = self.objection(document, automatic)
        if not objection and self.status.kind == "loading":
            objection = await self.model_or_reason() or self.objection(document, automatic)
        if objection:
            self.status.reason = objection
            return []
        self.look_around()
        if automatic and (rest := self.typed_through(document.uri, question)):
            return rest
        pause = min(LONGEST_PAUSE, self.status.seconds / 4) if automatic else 0.0
        self.ahead.stop()
        work = partial(self._answer, question)
        try:
            answer = await self.latest.ask(document.uri, question, work, pause=pause, anew=not automatic)
        except Cancelled:
            return None
        except UserError as error:
            self.show_once(str(error))
            return []
        except Exception as error:
            log.error("completion failed: %s", trail(error))
            self.show_once(f"a completion failed ({type(error).__name__}); the server's log says where")
            return []
        if answer is None:
            return []
        now = self.status
        now.reason, now.passes, now.seconds = answer.reason, answer.passes, answer.seconds
        for problem in answer.problems:
            self.show_once(problem, types.MessageType.Warning)
        return answer.completions

    def typed_through(self, uri: str, question: Question) -> list[Completion]:
        """What is left of the last answer, if someone types along with the best draft."""
        last = self.latest.last(uri)
        rest = rest_of(*last, question) if last and last[1] else None  # type: ignore[arg-type]
        if rest:
            self.status.reason, self.status.passes = "", 0
        return rest.completions if rest else []

    def look_around(self) -> None:
        """Have the worker hear of the documents that changed, and do what is left to do."""
        if not self.settings.enabled:
            return
        self.inbox.look(counted(self.protocol.documents(), self.settings.disabled_languages))
        self.upkeep.nudge()

    def _tidy(self, seconds: float) -> bool:
        """In the worker: what no request waits for; whether there is more to do."""
        if (completer := self.completer) is None:
            return False
        completer.hear(self.inbox.take())
        return completer.tidy(seconds)

    def _read_ahead(self, question: Question, check: Callable[[], None]) -> None:
        """In the worker: read what the next request is likely to show the model."""
        if (completer := self.completer) is not None:
            completer.read_ahead(question.source, question.cursor, question.language, check)

    async def model_or_reason(self) -> str:
        """Wait for the model: a person asked, and would rather wait than ask again, but not for ever."""
        try:
            await asyncio.wait_for(self.loaded.wait(), LONGEST_WAIT)
        except asyncio.TimeoutError:
            return LOADING
        return ""

    def _answer(self, question: Question, check: Callable[[], None]) -> Answer | None:
        """In the worker: one completion."""
        check()
        if (completer := self.completer) is None:
            return None
        q = question
        completer.hear(self.inbox.take(), q.name)
        answer = completer.complete(
            q.source, q.cursor, q.language, q.path, name=q.name, forced=q.forced, check=check
        )
        sizes = (len(answer.completions), answer.passes, answer.prompt_tokens, answer.seconds * 1000)
        log.info("completion: %d drafts, %d passes, %d prompt tokens, %.0f ms", *sizes)
        return answer

    def objection(self, document: LspDocument, automatic: bool) -> str:
        """Why this document gets no completion now, or nothing."""
        if not self.settings.enabled:
            return OFF
        if reason := refusal(place_of(document.uri), document.language_id, self.settings.disabled_languages):
            return reason
        if self.status.kind == "error":
            return self.status.message
        if automatic and self.status.kind == "loading":
            return self.status.message
        return "text was removed" if automatic and document.shrank else ""

    def show_once(self, text: str, kind: types.MessageType = types.MessageType.Error) -> None:
        """Tell the person, but never the same thing twice."""
        if text and text not in self.shown:
            self.shown.add(text)
            self.window_show_message(types.ShowMessageParams(kind, f"spd-lsp: {printable(text)}"))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log what pygls would show as a popup; errors of requests have been answered already."""
        if source is not FeatureRequestError:
            log.error("a message could not be handled: %s", trail(error))

    def shutdown(self) -> None:
        """Stop the work within one step, and let go of what it used: the session's end is not the process's."""
        self.loading.cancel(Reason.SHUTDOWN)
        self.latest.drop_all(Reason.SHUTDOWN)
        self.upkeep.stop()
        self.ahead.stop()
        self.worker.shutdown(wait=False, cancel_futures=True)
        self.completer = None
        super().shutdown()  # type: ignore[no-untyped-call]


def create_server(load: Load, settings: Settings | None = None, fixed: Sequence[str] = ()) -> SpdServer:
    """A server without a transport. `load` may block, may raise UserError, and runs after `initialize`.

    An editor's options count less than `settings` that differ from the defaults, and than those named `fixed`.
    """
    server = SpdServer(load, settings or Settings(), fixed)
    features: dict[str, tuple[Callable[..., Any], Any]] = {
        types.INITIALIZE: (initialize, None),
        types.INITIALIZED: (initialized, None),
        types.SHUTDOWN: (stop, None),
        types.TEXT_DOCUMENT_DID_OPEN: (_did_open, None),
        types.TEXT_DOCUMENT_DID_CHANGE: (_did_change, None),
        types.TEXT_DOCUMENT_DID_SAVE: (_did_save, None),
        types.TEXT_DOCUMENT_DID_CLOSE: (_did_close, None),
        types.WORKSPACE_DID_CHANGE_CONFIGURATION: (_did_change_configuration, None),
        types.TEXT_DOCUMENT_COMPLETION: (complete, types.CompletionOptions(trigger_characters=["."])),
        # Without options pygls does not announce the capability.
        types.TEXT_DOCUMENT_INLINE_COMPLETION: (_complete_inline, types.InlineCompletionOptions()),
        "spd-lsp/options": (_did_change_options, None),
        "spd-lsp/status": (status, None),
    }
    for method, (function, options) in features.items():
        server.feature(method, options)(function)
    return server


def initialize(ls: SpdServer, params: types.InitializeParams) -> None:
    """Take over what the client says of itself."""
    ls.protocol.adopt_workspace()
    ls.client, ls.editor = Client.of(params), visible(params.process_id)
    ls.configuration.set_options(params.initialization_options)


async def initialized(ls: SpdServer, params: types.InitializedParams) -> None:
    """Ask for the configuration, then load the model."""
    workspace = ls.client_capabilities.workspace
    watched = workspace.did_change_configuration if workspace else None
    if watched and watched.dynamic_registration:
        method = types.WORKSPACE_DID_CHANGE_CONFIGURATION
        registration = types.Registration(SECTION, method, {"section": SECTION})
        await reply_to(ls.client_register_capability_async(types.RegistrationParams([registration])))
    await _pull(ls)
    await ls.configure()


async def _did_change_configuration(ls: SpdServer, params: types.DidChangeConfigurationParams) -> None:
    """Use the new configuration."""
    if not await _pull(ls):
        settings = params.settings
        ls.configuration.set_configuration(settings.get(SECTION) if isinstance(settings, dict) else None)
    await ls.configure()


async def _did_change_options(ls: SpdServer, params: Any) -> None:
    """Use the editor's own options in place of those that it started with."""
    ls.configuration.set_options(params)
    await ls.configure()


async def _pull(ls: SpdServer) -> bool:
    """Ask the client for our section of its configuration; whether it can say."""
    workspace = ls.client_capabilities.workspace
    if not (workspace and workspace.configuration):
        return False
    wanted = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
    values = await reply_to(ls.workspace_configuration_async(wanted))
    if values:
        ls.configuration.set_configuration(values[0])
    return True


def stop(ls: SpdServer, params: None) -> None:
    """End all work before the client leaves."""
    ls.loading.cancel(Reason.SHUTDOWN)
    ls.latest.drop_all(Reason.SHUTDOWN)


def _did_close(ls: SpdServer, params: types.DidCloseTextDocumentParams) -> None:
    """Nobody waits for this document's answer any more."""
    ls.latest.drop(params.text_document.uri, Reason.CLIENT)
    ls.look_around()


def _did_open(ls: SpdServer, params: types.DidOpenTextDocumentParams) -> None:
    """Count what the document says before something is asked in it."""
    ls.look_around()


def _did_change(ls: SpdServer, params: types.DidChangeTextDocumentParams) -> None:
    """Someone types, and may soon ask."""
    if (document := ls.protocol.opened(params.text_document.uri)) and not ls.objection(document, automatic=False):
        ls.ahead.follow(document)


def _did_save(ls: SpdServer, params: types.DidSaveTextDocumentParams) -> None:
    """The disk says now what the document said."""
    if (document := ls.protocol.opened(params.text_document.uri)) is not None:
        ls.inbox.save(document.uri)
        ls.look_around()


async def complete(ls: SpdServer, params: types.CompletionParams) -> types.CompletionList | None:
    """Offer the drafts as a menu; null if a newer request took this one's place."""
    document = ls.protocol.opened(params.text_document.uri)
    if document is None:
        ls.status.reason = "the document is not open"
        return types.CompletionList(is_incomplete=True, items=[])
    kind = params.context.trigger_kind if params.context else types.CompletionTriggerKind.Invoked
    automatic = kind != types.CompletionTriggerKind.Invoked or document.just_typed
    cursor = document.offset_at_position(params.position)
    place = place_in(document, cursor)
    start = document.client_position_at_offset(cursor - len(place.word))
    drafts = await ls.drafts(document, question(document, cursor, not automatic), automatic)
    if drafts is None:
        return None
    return types.CompletionList(is_incomplete=True, items=menu_items(drafts, place, start, ls.client))


async def _complete_inline(
    ls: SpdServer, params: types.InlineCompletionParams
) -> types.InlineCompletionList | None:
    """Offer the same drafts as ghost text; an empty list hides an older one, null leaves it."""
    document = ls.protocol.opened(params.text_document.uri)
    if document is None:
        ls.status.reason = "the document is not open"
        return types.InlineCompletionList(items=[])
    automatic = params.context.trigger_kind == types.InlineCompletionTriggerKind.Automatic
    asked, edit, typed = question(document, document.offset_at_position(params.position), not automatic), None, ""
    if (selected := params.context.selected_completion_info) is not None:
        edit, typed = selected.range, selected.text
        asked = with_selected(asked, document, selected)
    cursor = document.client_position_at_offset(asked.cursor)
    drafts = await ls.drafts(document, asked, automatic)
    if drafts is None:
        return None
    return types.InlineCompletionList(inline_items(drafts, edit or types.Range(cursor, cursor), typed))


def status(ls: SpdServer, params: None) -> dict[str, Any]:
    """What a status bar shows, and why the last answer was empty."""
    return ls.status.told(busy=ls.latest.busy, enabled=ls.settings.enabled)

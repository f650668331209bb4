"""One editor's session: which drafts answer a request, and what else runs and stops with it.

In: documents, cursors and settings from one editor. Out: the completer's drafts. The event loop runs here;
everything that computes runs in the session's `CompletionWorker`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.exceptions import FeatureRequestError
from pygls.lsp.server import LanguageServer

from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import display_path
from spd_lsp import __version__
from spd_lsp.completion.exclusions import MAY_HOLD_SECRETS, OFF
from spd_lsp.completion.typed_along import CompletionRequest, RecentResults, merge_previous, typed_since
from spd_lsp.lsp.completion_items import ItemCapabilities
from spd_lsp.lsp.completion_worker import CompletionWorker
from spd_lsp.lsp.documents import LspDocument, LspWorkspace
from spd_lsp.lsp.idle_work import IdleWorker, Prefetcher
from spd_lsp.lsp.indexing.folder_indexer import FolderIndexer
from spd_lsp.lsp.next_edits import NextEdits, read_closed
from spd_lsp.lsp.options import Configuration
from spd_lsp.lsp.protocol import SpdProtocol
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason, RequestScheduler
from spd_lsp.lsp.status import COMPUTING, LOADING, Status
from spd_lsp.lsp.usage import Accepted, Offered, Usage, add_counts
from spd_lsp.ngrams.file_sync import real_path
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import safe_traceback, user_message
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.offer import CompletionResult
    from spd_lsp.completion.ranking import Completion
    from spd_lsp.ngrams.weight_learning import Evidence

_MAX_WAIT_FOR_OTHERS = 0.05  # seconds, while the first draft is typed along with; the next key comes soon
_MAX_WAIT_FOR_TABLES = 0.2  # seconds, as an editor asks again soon
_KEPT_SECONDS = 60.0  # from acceptance until it is looked whether the text still stands
_MAX_OFFERED = 16  # completions that may still be accepted, of which each holds how it was made
_SAVE_SECONDS = 30.0  # between two additions to the counts on the disk
MAX_WAIT_FOR_MODEL = 5.0  # seconds; Emacs gives up on a request after ten

log = logging.getLogger(__name__)


class SpdServer(LanguageServer):
    """One editor's session."""

    protocol: SpdProtocol
    requests: RequestScheduler[CompletionRequest, CompletionResult | None]

    def __init__(self, worker: CompletionWorker, settings: Settings, fixed: Sequence[str] = ()) -> None:
        notebooks = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])
        super().__init__("spd-lsp", __version__, notebook_document_sync=notebooks, protocol_cls=SpdProtocol)
        self.settings = settings
        self.configuration = Configuration(settings, fixed)
        self.worker = worker
        self.recent = RecentResults()
        self.requests = RequestScheduler(self.worker.executor, typed_since, self.keep)
        self.idle_worker = IdleWorker(self.worker.executor, lambda: self.requests.busy, self.worker.run_idle_work)
        self.prefetcher = Prefetcher(self.worker, self.requests, self.recent, self.announce_longer)
        look_for_tables = partial(worker.executor.submit, worker.look_for_tables)
        self.indexer = FolderIndexer(self, look_for_tables)
        self.next_edits = NextEdits()
        self.client = ItemCapabilities()
        self.usage = Usage()
        self.offered: dict[int, Evidence] = {}  # by number, until an editor says which it inserted
        self.on_answer: Callable[[CompletionResult, int], None] = lambda result, completions: None
        self.usage_timer: asyncio.TimerHandle | None = None  # until it is saved
        self.kept_timers: list[asyncio.TimerHandle] = []
        self.snoozes_until = 0.0
        self.editor_process: int | None = None  # if it runs on this machine
        self.status = Status()
        self.protocol.on_lost_edit = self.note_lost_edit
        self.served: tuple[str, Sequence[str]] = "", ()  # the tables of the document last asked for
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
        if not request.explicit and (reason := self.why_quiet()):
            self.status.reason = reason
            return []
        revision = document.revision
        if not request.explicit and self.settings.delay:
            await asyncio.sleep(self.settings.delay / 1000)
        if document.revision != revision:
            return None
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
        """Seconds to wait for what comes behind the first draft that is left; None: forever, as there is none."""
        if known is None or not known.keeps_first:
            return None
        return _MAX_WAIT_FOR_OTHERS if self.status.seconds < _MAX_WAIT_FOR_OTHERS else 0.001

    def keep(self, request: CompletionRequest, result: CompletionResult | None) -> CompletionResult | None:
        """Keep a result, with what is left of earlier ones, whoever still waits for it."""
        left = None if request.explicit else self.recent.find(request, self.worker.is_current)
        return result and self.recent.add(request, merge_previous(result, left))

    def note(self, request: CompletionRequest, result: CompletionResult) -> list[Completion]:
        """Return a result's drafts; its reason, cost and problems are for the user to see."""
        self.prefetcher.complete_ahead(request, result)
        self.status.reason = result.reason
        self.status.last = result
        self.status.seconds = result.seconds or self.status.seconds
        if result.completions:
            self.usage.offers.append(_as_counted(request, result))
        self.on_answer(result, len(result.completions))
        self.save_usage_soon()
        self.offered |= {one.evidence.number: one.evidence for one in result.completions if one.evidence}
        for number in list(self.offered)[:-_MAX_OFFERED]:
            del self.offered[number]
        instead = [f"{result.instead}; the bundled model completes until it does"] if result.instead else []
        for problem in (*instead, *result.problems):
            self.show_once(problem, types.MessageType.Warning)
        return result.completions

    def note_acceptance(self, *accepted: Any) -> None:
        """Count a completion that an editor says it inserted, and later whether it is kept."""
        if found := self.usage.note_acceptance(*accepted):
            loop = asyncio.get_running_loop()
            waiting = [timer for timer in self.kept_timers if timer.when() > loop.time()]
            self.kept_timers = [*waiting, loop.call_later(_KEPT_SECONDS, self.look_for_accepted, found)]
            self.kept_timers.append(loop.call_later(_KEPT_SECONDS, self.save_usage_soon))
        self.save_usage_soon()
        number = accepted[3] if len(accepted) > 3 and isinstance(accepted[3], int) else 0
        if (evidence := self.offered.pop(number, None)) is not None:
            self.worker.accepted.append(evidence.learn())
            self.idle_worker.wake()

    def look_for_accepted(self, *accepted: Accepted) -> None:
        """Count which of these are kept; of documents that were closed that is not known."""
        for one in accepted:
            document = self.workspace.get_text_document(one.uri)
            if document.is_open:
                self.usage.judge(one, self.workspace.whole_text(document)[0].text)

    def save_usage_soon(self) -> None:
        """Add the counts to the file, once for many."""
        if self.usage_timer is None:
            loop = asyncio.get_running_loop()
            write = self.worker.executor.submit
            self.usage_timer = loop.call_later(_SAVE_SECONDS, self.save_usage, write)

    def save_usage(self, run: Callable[..., Any]) -> None:
        """Add the counts to the file by `run(function, *arguments)`."""
        if self.usage_timer:
            self.usage_timer.cancel()
            self.usage_timer = None
            run(add_counts, self.data_folder, self.usage.take())

    @property
    def data_folder(self) -> Path:
        """Where tables and counts are."""
        return Registry(Path(self.settings.data_dir) if self.settings.data_dir else None).folder

    def request_at(self, document: LspDocument, cursor: int, *, explicit: bool = False) -> CompletionRequest:
        """A request at an offset in a document."""
        return self.workspace.request_at(document, cursor, self.settings.disabled_languages, explicit=explicit)

    async def why_not(self, document: LspDocument, request: CompletionRequest) -> str:
        """Why a request gets no completions, or an empty string. An explicit one waits for the first model."""
        is_early = self.status.kind == "loading" and not self.worker.has_model
        if request.explicit and is_early and not self.exclusion(document):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.loaded.wait(), MAX_WAIT_FOR_MODEL)
        return self.exclusion(document) or ("" if self.worker.can_answer else LOADING)

    def why_quiet(self) -> str:
        """Why nothing is offered while someone types, or an empty string."""
        if not self.settings.automatic:
            return "completions are offered only when you ask for them"
        return "completions are snoozing" if self.snooze_seconds else ""

    @property
    def snooze_seconds(self) -> int:
        """How long nothing is offered yet while someone types."""
        return max(0, math.ceil(self.snoozes_until - time.monotonic()))

    def exclusion(self, document: LspDocument) -> str:
        """Why a document gets no completions whatever is typed in it, or an empty string."""
        if not document.is_open:
            return "the document is not open"
        if not self.settings.enabled:
            return OFF
        if document.is_in(self.settings.disabled_languages):
            return f"{OFF} for {document.language_id}"
        if document.may_hold_secrets:
            return MAY_HOLD_SECRETS
        if document.is_out_of_step:
            return _out_of_step(document.uri)
        return self.status.message if self.status.kind == "error" else ""

    def note_lost_edit(self, params: Any) -> None:
        """Offer nothing in the documents that an edit was of which is not understood, and say so."""
        for document in self.workspace.documents_of(params):
            document.is_out_of_step = True
            self.recent.drop(document.uri)
            self.show_once(_out_of_step(document.uri), types.MessageType.Warning)

    async def tables_for(self, document: LspDocument) -> Sequence[str]:
        """The names of the tables that serve a document; while the worker is busy, what is known of it."""
        if not (self.requests.busy or self.exclusion(document)):
            request = self.request_at(document, 0)
            work = partial(self.worker.tables_for, request.path, request.language)
            running = asyncio.get_running_loop().run_in_executor(self.worker.executor, work)
            with suppress(asyncio.TimeoutError):
                self.served = document.uri, await asyncio.wait_for(running, _MAX_WAIT_FOR_TABLES)
        return self.served[1] if self.served[0] == document.uri else ()

    async def imported_documents(self, document: LspDocument) -> list[LspDocument]:
        """The files that a document imports, but for open ones, as on the disk; none while the worker is busy."""
        work = partial(self.worker.imported_files, self.workspace.whole_text(document)[0])
        running = asyncio.get_running_loop().run_in_executor(self.worker.executor, work)
        found: list[str] = []
        with suppress(asyncio.TimeoutError):
            found = await asyncio.wait_for(running, _MAX_WAIT_FOR_TABLES)
        opened = {real_path(one.file) for one in self.workspace.documents if one.file}
        closed = [path for path in found if path not in opened]
        read = await asyncio.to_thread(read_closed, closed, self.workspace.encoding)
        return [one for one in read if one.is_indexable(self.settings.disabled_languages)]

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

    def announce_longer(self, uri: str) -> None:
        """Tell the client to ask again for ghost text, if it understands that: a whole block is ready."""
        if self.client.asks_again:
            self.protocol.notify("spd-lsp/longer", {"uri": uri})

    def forget_documents(self, uris: Sequence[str]) -> None:
        """Drop what runs and what was answered for closed documents, and no longer count them."""
        for uri in uris:
            self.requests.drop(uri, CancelReason.CLIENT)
            self.recent.drop(uri)
        self.index_changes()

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
        for timer in self.kept_timers:
            timer.cancel()
        self.look_for_accepted(*self.usage.waiting)  # sooner than in a minute, but never else
        self.save_usage(lambda write, *arguments: write(*arguments))
        self.indexer.stop()
        self.idle_worker.stop()
        self.prefetcher.stop()
        self.worker.close()
        super().shutdown()  # type: ignore[no-untyped-call]


def _out_of_step(uri: str) -> str:
    """What to do about a document whose text here may be another than the editor's."""
    name = display_path(PurePosixPath(unquote(urlsplit(uri).path)).name)
    return f"the editor sent an edit of {name} that is not understood; save it, or close and open it again"


def _as_counted(request: CompletionRequest, result: CompletionResult) -> Offered:
    """What is counted of an answer."""
    before = request.source[request.source.rfind("\n", 0, request.cursor) + 1 : request.cursor]
    texts = tuple((one.kind, one.text) for one in result.completions)
    milliseconds = round(1000 * result.seconds) if result.passes else 0
    return Offered(request.uri, request.language, before, texts, milliseconds)

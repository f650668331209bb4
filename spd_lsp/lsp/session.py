"""One editor's session: which drafts answer a request, and what else is computed before the next one comes.

In: documents, cursors and settings from one editor. Out: the completer's drafts. The event loop runs here;
everything that computes runs in the session's `Worker`, one computation at a time:

- The newest request wins, whatever document it is in. Those before it are answered with null.
- A computation goes on while someone types along with its drafts so far, also when the editor has given up its
  request. Any other request stops it within one step.
- Once typing pauses, the prompt is read where the next request is likely, or the request that follows if the best
  draft is accepted is answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types
from pygls.exceptions import FeatureRequestError
from pygls.lsp.server import LanguageServer

from ngram_builders.registry.registry import Registry
from spd_lsp import __version__
from spd_lsp.completion.exclusions import MAY_HOLD_SECRETS, OFF
from spd_lsp.completion.typed_along import (
    CompletionRequest,
    RecentResults,
    after_accepting,
    merge_previous,
    typed_since,
)
from spd_lsp.edits import Session as NextEdits
from spd_lsp.lsp.completion_items import ItemCapabilities
from spd_lsp.lsp.documents import LspDocument, LspWorkspace
from spd_lsp.lsp.folder_indexer import FolderIndexer
from spd_lsp.lsp.loading import COMPUTING, LOADING, ModelLoader, Status
from spd_lsp.lsp.options import Configuration
from spd_lsp.lsp.protocol import SpdProtocol
from spd_lsp.lsp.usage import Usage, add_counts
from spd_lsp.lsp.worker import CancellationToken, Cancelled, Worker
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import safe_traceback, user_message
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.offer import CompletionResult
    from spd_lsp.completion.ranking import Completion

    Work = Callable[[CompletionRequest, CancellationToken], CompletionResult]

_MAX_WAIT_FOR_OTHERS = 0.05  # seconds, while the first draft is typed along with; the next key comes soon
PREFETCH_DELAY_SECONDS = 0.15  # editors that complete while typing ask sooner
AHEAD_DELAY_SECONDS = 0.15  # whoever types on does so sooner; reading a draft and accepting it takes longer
_MAX_AHEAD_SECONDS = 1.0  # a completion that takes longer is not computed for nothing
_MAX_CHARS_FOR_NEXT_EDITS = 200_000  # of a document

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Computation:
    """What the worker computes for a request."""

    request: CompletionRequest
    token: CancellationToken
    task: asyncio.Task[CompletionResult]

    @property
    def is_running(self) -> bool:
        """Whether its result may still come."""
        return not (self.token.is_cancelled or self.task.done())

    def cancel(self) -> None:
        """Stop it: at once for those who wait for it, within one step in the worker."""
        self.token.is_cancelled = True
        self.task.cancel()


class Session(LanguageServer):
    """One editor's session."""

    protocol: SpdProtocol

    def __init__(
        self, worker: Worker, loader: ModelLoader, settings: Settings, fixed: Collection[str] = ()
    ) -> None:
        notebooks = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])
        super().__init__("spd-lsp", __version__, notebook_document_sync=notebooks, protocol_cls=SpdProtocol)
        self.settings = settings
        self.configuration = Configuration(settings, fixed)
        self.worker = worker
        self.loader = loader
        self.indexer = FolderIndexer(self)
        self.next_edits = NextEdits()
        self.usage = Usage()
        self.client = ItemCapabilities()
        self.status = Status()
        self.on_answer: Callable[[CompletionResult], None] | None = None
        self.snoozes_until = 0.0
        self.has_shut_down = False  # the client has sent `shutdown`
        self.recent = RecentResults()
        self.computing: Computation | None = None  # the newest
        self.asked: CompletionRequest | None = None  # last
        self.answering: asyncio.Task[CompletionResult] | None = None  # that request
        self.ahead: asyncio.Task[None] | None = None  # what may help the next request
        self.ahead_of: CompletionRequest | None = None  # the request whose best draft that expects to be accepted
        self.read_at: CompletionRequest | None = None  # where the prompt was read last, or is about to be
        self.shown_messages: set[str] = set()

    @property
    def workspace(self) -> LspWorkspace:
        """The open documents."""
        return cast(LspWorkspace, self.protocol.workspace)

    async def complete(self, document: LspDocument, request: CompletionRequest) -> list[Completion] | None:
        """Return the drafts for a request, best first; None if a newer request replaced it."""
        # 1. Nothing is offered here, or not while someone types.
        self.index_changes()
        if reason := self.why_not(document, request):
            self.status.reason = reason
            return []
        # 2. Typing goes on within the delay.
        revision = document.revision
        if not request.explicit and self.settings.delay:
            await asyncio.sleep(self.settings.delay / 1000)
        if document.revision != revision:
            return None
        # 3. What was computed before is enough, or is all that there is after a deletion.
        known = self.known(request)
        if known and (document.shrank or not known.needs_refresh):
            return self.note(request, known)
        if document.shrank and not request.explicit:
            self.status.reason = "text was deleted"
            return []
        # 4. The model is asked, once for all who ask the same.
        if self.running and self.running.request == replace(request, explicit=True):
            request = self.running.request  # ghost text must not cancel the menu of who asked
        if not (self.running and self.running.request == request):
            self.stop_ahead()
        self.status.reason = COMPUTING
        if self.answering is None or self.answering.done() or self.asked != request:
            if self.answering is not None:
                self.answering.cancel()
            self.asked, self.answering = request, _observed(self.answer(request))
        answering = self.answering
        await asyncio.wait({answering}, timeout=self.patience(known))
        if known and not answering.done():
            return self.note(request, known)
        try:
            result = answering.result()
        except (asyncio.CancelledError, Cancelled):
            return None
        except Exception as error:
            self.show_once(user_message(error, "completion"))
            return []
        return self.note(request, result)

    def known(self, request: CompletionRequest) -> CompletionResult | None:
        """What earlier results leave for a request; None if the user made it or other code was indexed since."""
        completer = self.worker.completer
        return None if request.explicit or not completer else self.recent.find(request, completer.index_revision)

    async def answer(self, request: CompletionRequest) -> CompletionResult:
        """Return what a running computation of an earlier request leaves for this one, or else its own result."""
        running = self.running
        if running and running.token.has_begun and (typed := typed_since(running.request, request)):
            running.token.typed = typed
            await asyncio.wait({running.task})  # its errors belong to the earlier request
            left = self.known(request)
            if left and not left.needs_refresh:
                return left
        computing = self.compute(request, self.worker.complete)
        await asyncio.wait({computing})  # which goes on if a newer request cancels this
        return computing.result()

    @property
    def running(self) -> Computation | None:
        """The computation whose result may still come."""
        return self.computing if self.computing and self.computing.is_running else None

    def compute(self, request: CompletionRequest, work: Work) -> asyncio.Task[CompletionResult]:
        """The computation of a request, begun now unless it runs; any other is stopped.

        Its result is kept, with what is left of earlier ones, whoever still waits for it.
        """
        if self.running is None or self.running.request != request:
            if self.running:
                self.running.cancel()
            token = CancellationToken()

            async def result() -> CompletionResult:
                found = await self.worker.run(work, request, token=token)
                return self.recent.add(request, merge_previous(found, self.known(request)))

            self.computing = Computation(request, token, _observed(result()))
        assert self.computing
        return self.computing.task

    def stop(self, uris: Collection[str] = ()) -> None:
        """Stop the computation, if it is for one of these documents or none are named."""
        if self.running and (not uris or self.running.request.uri in uris):
            self.running.cancel()
            self.asked = None

    def note_edit(self, document: LspDocument) -> None:
        """Stop the computation unless it may still help; then what is expected after an edit is computed."""
        request = self.workspace.request_at(document, document.edited_at)
        if (running := self.running) and running.request.uri == request.uri and running.request != request:
            if typed := typed_since(running.request, request):
                running.token.typed = typed
            elif not typed_since(request, running.request):  # it is not what was expected either
                self.stop()
        self.prefetch(document, document.edited_at)

    def patience(self, known: CompletionResult | None) -> float | None:
        """Seconds to wait for a new result, few if the draft that stood first is left; None: until it comes."""
        if known is None or not known.keeps_first:
            return None
        return _MAX_WAIT_FOR_OTHERS if self.status.seconds < _MAX_WAIT_FOR_OTHERS else 0.001

    def note(self, request: CompletionRequest, result: CompletionResult) -> list[Completion]:
        """Return a result's drafts; its reason, cost and problems are for the user to see."""
        self.complete_ahead(request, result)
        self.status.reason = result.reason
        self.status.last = result
        self.status.seconds = result.seconds or self.status.seconds
        if result.completions:
            best = result.completions[0]
            milliseconds = round(1000 * result.seconds) if result.passes else 0
            counted = request.language, best.kind, best.text, milliseconds
            asyncio.get_running_loop().call_soon(self.usage.note_offer, *counted)  # the answer does not wait
        if self.on_answer:
            self.on_answer(result)
        instead = [f"{result.instead}; the bundled model completes until it does"] if result.instead else []
        for problem in (*instead, *result.problems):
            self.show_once(problem, types.MessageType.Warning)
        return result.completions

    # What may help the next request, at most one thing at a time:

    def prefetch(self, document: LspDocument, cursor: int) -> None:
        """Read the prompt at a place once typing pauses, unless it was read or is being completed."""
        self.worker.wake()
        if self.exclusion(document):
            return
        request = self.workspace.request_at(document, cursor)
        if request not in (self.read_at, self.running and self.running.request):
            self.plan(PREFETCH_DELAY_SECONDS, partial(self.worker.run, self.worker.prefetch, request))
            self.read_at = request

    def complete_ahead(self, request: CompletionRequest, result: CompletionResult) -> None:
        """Complete the block that the best draft opens, and answer the request that follows its acceptance."""
        if self.ahead_of == request and self.ahead and not self.ahead.done():
            return  # an editor that asks again must not begin it again
        if result.completions and result.seconds <= _MAX_AHEAD_SECONDS:
            self.plan(AHEAD_DELAY_SECONDS, partial(self.compute_ahead, request, result))
            self.ahead_of = request
        self.read_at = request

    def stop_ahead(self) -> None:
        """Cancel what is planned or runs."""
        if self.ahead is not None:
            self.ahead.cancel()
            self.read_at = self.ahead_of = None

    def plan(self, delay: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do `work` after `delay` seconds, instead of what was planned before. Failures are logged."""

        async def run() -> None:
            await asyncio.sleep(delay)
            if self.running:
                self.read_at = None
                return
            try:
                await work()
            except Cancelled:
                pass
            except Exception as error:
                log.error("prefetch failed: %s", safe_traceback(error))

        self.stop_ahead()
        self.ahead = asyncio.ensure_future(run())

    async def compute_ahead(self, request: CompletionRequest, result: CompletionResult) -> None:
        """Compute the result of the request that follows if the best draft is accepted."""
        if result.opens_block:
            longer = await self.worker.run(self.worker.write_block, request, result)
            self.recent.add(request, longer)
            if longer.completions != result.completions and self.client.asks_again:
                self.protocol.notify("spd-lsp/longer", {"uri": request.uri})  # it asks again for ghost text
            result = longer
        following = after_accepting(request, result.completions[0])
        if self.known(following) is None:
            await asyncio.wait({self.compute(following, partial(self.worker.complete_ahead, request))})

    @property
    def data_folder(self) -> Path:
        """Where tables and counts are."""
        return Registry(Path(self.settings.data_dir) if self.settings.data_dir else None).folder

    def why_not(self, document: LspDocument, request: CompletionRequest) -> str:
        """Why a request gets no completions, or an empty string."""
        if reason := self.exclusion(document):
            return reason
        if self.worker.completer is None:
            return LOADING
        if request.explicit:
            return ""
        if not self.settings.automatic:
            return "completions are offered only when you ask for them"
        return "completions are snoozing" if self.snooze_seconds else ""

    @property
    def snooze_seconds(self) -> int:
        """The seconds that are left of a snooze."""
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
        return self.status.message if self.status.kind == "error" else ""

    def note_edits(self) -> None:
        """Look at what changed in the documents for next edits, unless they are switched off."""
        if self.settings.next_edits:
            short = (one for one in self.workspace.documents if len(one.source) <= _MAX_CHARS_FOR_NEXT_EDITS)
            self.next_edits.see({one.uri: one.source for one in short if not self.exclusion(one)})

    def index_changes(self) -> None:
        """Have the worker count the open documents as they are now, at the next request or when idle."""
        if self.settings.enabled:
            opened = self.workspace.indexable(self.settings.disabled_languages)
            self.worker.opened = {document.name: document for document in opened}
            self.worker.wake()

    def index_folders(self) -> None:
        """Index the open folders in the background, once the model is loaded."""
        completer = self.worker.completer
        fingerprint = completer.tokens.fingerprint if completer else None
        self.indexer.update(self.workspace.folder_uris, self.settings, fingerprint)

    def forget_documents(self, uris: Sequence[str]) -> None:
        """Stop the computation for closed documents, and forget their results and texts."""
        self.stop(uris)
        for uri in uris:
            self.recent.drop(uri)
        self.index_changes()

    def forget_results(self) -> None:
        """Stop the computation and forget all results, as after a change of settings."""
        self.stop()
        self.recent.drop()

    def show_once(self, text: str, kind: types.MessageType = types.MessageType.Error) -> None:
        """Show the user a message, unless it was shown before."""
        if text and text not in self.shown_messages:
            self.shown_messages.add(text)
            self.window_show_message(types.ShowMessageParams(kind, f"spd-lsp: {printable(text)}"))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log what pygls would show as a popup; failed requests have been answered already."""
        if source is not FeatureRequestError:
            log.error("failed to handle a message: %s", safe_traceback(error))

    async def note_acceptance(self, language: str, source: str, characters: int) -> None:
        """Count a completion that the editor inserted."""
        self.usage.note_acceptance(language, source, characters)
        await asyncio.to_thread(add_counts, self.data_folder, self.usage.take())

    def shutdown(self) -> None:
        """Stop all work and free the model: the process may go on to serve other sessions."""
        self.stop()
        self.stop_ahead()
        if counts := self.usage.take():
            add_counts(self.data_folder, counts)
        self.indexer.stop()
        self.loader.close()
        self.worker.close()
        super().shutdown()  # type: ignore[no-untyped-call]


def _observed(work: Awaitable[CompletionResult]) -> asyncio.Task[CompletionResult]:
    """A task whose errors asyncio does not log where nobody waits for it: their messages may quote code."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task

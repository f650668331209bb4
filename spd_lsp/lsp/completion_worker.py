"""The worker thread of a session: the only thread that touches its completer, and so needs no locks.

In: settings, requests and changed documents from the event loop. Out: completion results. Between requests the
thread indexes in slices, and prepares the answer to a likely request: a request waits for one slice, and stops
what is prepared within one step, unless it asks for just that. Knows nothing of LSP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spd_lsp.completion.typed_along import CompletionRequest, RecentResults, after_accepting
from spd_lsp.lsp.protocol import safe_traceback, user_message
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason, RequestScheduler
from spd_lsp.lsp.status import LOADING
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.offer import CompletionResult

    Report = Callable[[str], None]
    Load = Callable[[Settings, Report], Completer]
    Answer = tuple[CompletionRequest, CompletionResult]

log = logging.getLogger(__name__)

_SLICE_SECONDS = 0.005  # longest that a request waits for the worker
_PAUSE_SECONDS = 0.01  # between two slices
LOOK_SECONDS = 1.0  # between two looks for work, where nobody says that there is some
PREFETCH_DELAY_SECONDS = 0.15  # editors that complete while typing ask sooner
AHEAD_DELAY_SECONDS = 0.15  # whoever types on does so sooner; reading a draft and accepting it takes longer
_MAX_AHEAD_SECONDS = 1.0  # a completion that takes longer is not computed for nothing


class DocumentChanges:
    """The newest change of each document. Filled on the event loop, drained in the worker thread."""

    def __init__(self) -> None:
        self.known: dict[str, OpenDocument] = {}
        self.pending: dict[str, DocumentChange] = {}  # each put and pop is atomic
        self.files: dict[Path, None] = {}  # that other programs changed, likewise

    def update(self, documents: Iterable[OpenDocument]) -> None:
        """Record which documents changed, were opened or closed since the last update."""
        now = {document.name: document for document in documents}
        for name in self.known.keys() - now.keys():
            self.pending[name] = DocumentChange(None, self.is_save_pending(name))
        for name, document in now.items():
            if (before := self.known.get(name)) is None or before.text is not document.text:
                self.pending[name] = DocumentChange(document, self.is_save_pending(name))
        self.known = now

    def mark_saved(self, name: str) -> None:
        """Record that a document was saved."""
        if (document := self.known.get(name)) is not None:
            self.pending[name] = DocumentChange(document, True)

    def is_save_pending(self, name: str) -> bool:
        """Whether a save of the document is still to be drained."""
        news = self.pending.get(name)
        return news is not None and news.saved

    def reset(self) -> None:
        """Report all documents again at the next update: the index is a new one."""
        self.known = {}

    def mark_files_changed(self, files: Iterable[Path]) -> None:
        """Record files that were created, changed or deleted on disk."""
        self.files.update(dict.fromkeys(files))

    def drain_files(self) -> list[Path]:
        """Return and clear the files that changed on disk."""
        files = list(self.files)
        for file in files:
            del self.files[file]
        return files

    def drain(self) -> dict[str, DocumentChange]:
        """Return and clear the changes, by document name."""
        return {name: self.pending.pop(name) for name in list(self.pending)}


class CompletionWorker:
    """A thread, and the completer that it has loaded. Methods that are not async run in the thread."""

    def __init__(self, load: Load) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="spd-lsp")
        self.changes = DocumentChanges()
        self.shown: tuple[CompletionRequest, CompletionResult] | None = (
            None  # that `complete` has not just computed
        )
        self.loaded_settings: Settings | None = None  # of the last completer that could be loaded
        self._make_completer = load
        self._completer: Completer | None = None

    @property
    def fingerprint(self) -> str | None:
        """What identifies the tokenizer of the loaded model; None without one."""
        completer = self._completer
        return completer.tokens.fingerprint if completer else None

    async def load(self, settings: Settings, report: Report, cancel: CancellationToken) -> str:
        """Replace the completer; what went wrong, or an empty string. `report` is called on the event loop."""
        loop = asyncio.get_running_loop()

        def report_or_stop(text: str) -> None:
            cancel.check()
            loop.call_soon_threadsafe(report, text)

        return await loop.run_in_executor(self.executor, self._load, settings, report_or_stop, cancel)

    def _load(self, settings: Settings, report: Report, cancel: CancellationToken) -> str:
        try:
            report(LOADING)
            self._completer = None  # two models at once may not fit into memory
            completer = self._make_completer(settings, report)
            cancel.check()
            self._completer, self.loaded_settings = completer, settings
        except Cancelled as cancelled:
            return str(cancelled)
        except Exception as error:
            return user_message(error, "loading the model")
        return ""

    def is_current(self, result: CompletionResult) -> bool:
        """Whether the index still says what the result was computed from. Called on the event loop."""
        if self._completer is None or self.changes.files:
            return False
        return result.index_revision == self._completer.index_revision

    def look_for_tables(self) -> None:
        """Serve the next request from the tables that there are now. Called on the event loop."""
        self.executor.submit(self._look_for_tables)

    def _look_for_tables(self) -> None:
        if self._completer is not None:
            self._completer.domains.reload_if_changed()

    def apply_settings(self, settings: Settings) -> None:
        """Complete with these settings from now on; model and tables stay."""
        if self._completer is not None:
            self._completer.apply_settings(settings)

    def complete(self, request: CompletionRequest, cancel: CancellationToken) -> CompletionResult | None:
        """Answer a request, if there is a model."""
        cancel.check()
        if (completer := self._completer) is None:
            return None
        self._update_index(completer, request.uri)
        result = completer.complete(
            request.source,
            request.cursor,
            request.language,
            request.path,
            name=request.uri,
            explicit=request.explicit,
            check=cancel.check,
            check_typed=cancel.check_typed,
        )
        prompt = result.prompt_tokens, result.read_tokens
        sizes = len(result.completions), result.passes, *prompt, result.seconds * 1000
        log.info("completion: %d drafts, %d passes, %d prompt tokens, %d of them read, %.0f ms", *sizes)
        return result

    def complete_ahead(
        self, request: CompletionRequest, cancel: CancellationToken, shown: Answer
    ) -> CompletionResult | None:
        """Answer a request that follows if something that is shown is accepted, and change nothing by that."""
        cancel.check()
        try:
            return self.complete(request, cancel)
        finally:
            if self._completer is not None:
                self._completer.resume(*_offer(*shown))

    def prefetch(self, request: CompletionRequest, check: Callable[[], None]) -> None:
        """Have the model read the prompt of a request that may follow."""
        check()
        if (completer := self._completer) is not None:
            self._update_index(completer)
            document = OpenDocument(request.uri, request.path, request.language, request.source)
            log.info("prefetch: %d prompt tokens read", completer.prefetch(document, request.cursor, check))

    def run_idle_work(self, seconds: float) -> bool:
        """Index changed documents and the like for about so long; whether there is more to do."""
        if (completer := self._completer) is None:
            return False
        self._update_index(completer)
        return completer.run_idle_work(seconds)

    def _update_index(self, completer: Completer, active: str = "") -> None:
        completer.update_documents(self.changes.drain(), active)
        if self.shown:
            shown, self.shown = self.shown, None
            completer.record_shown(*_offer(*shown))
        if files := self.changes.drain_files():
            completer.update_files(files)

    def close(self) -> None:
        """End the thread and let go of the model."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        self._completer = None


def _offer(request: CompletionRequest, result: CompletionResult) -> tuple[OpenDocument, int, list[str]]:
    """The document of an answered request, its cursor, and the texts that are shown there."""
    document = OpenDocument(request.uri, request.path, request.language, request.source)
    return document, request.cursor, [completion.text for completion in result.completions]


class IdleWorker:
    """One task on the event loop: works in slices until nothing is left to do, and looks for work now and then."""

    def __init__(self, worker: Executor, is_busy: Callable[[], bool], work: Callable[[float], bool]) -> None:
        self._worker = worker
        self._is_busy = is_busy
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()  # since the last slice began, which may have looked for work before

    def wake(self) -> None:
        """Look for work soon."""
        self._woken.set()
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """Start no more slices."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        more = False
        while True:
            if not more:  # other programs change files and tables, and not every editor says so
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), LOOK_SECONDS)
            await asyncio.sleep(_PAUSE_SECONDS)
            if self._is_busy():
                more = True
            else:
                self._woken.clear()
                more = await asyncio.get_running_loop().run_in_executor(self._worker, self._run_slice)

    def _run_slice(self) -> bool:
        """In the worker thread. Failures are logged and end the work until the next look."""
        try:
            return self._work(_SLICE_SECONDS)
        except Exception as error:
            log.error("idle work failed: %s", safe_traceback(error))
            return False


class Prefetcher:
    """Prepares the answer that is most likely asked for next, once typing pauses; at most one at a time."""

    def __init__(
        self,
        worker: CompletionWorker,
        requests: RequestScheduler[CompletionRequest, CompletionResult | None],
        recent: RecentResults,
    ) -> None:
        self._worker = worker
        self._requests = requests
        self._recent = recent
        self._task: asyncio.Task[None] | None = None
        self._place: CompletionRequest | None = None  # where the prompt was read last, or is about to be

    def read_prompt(self, request: CompletionRequest) -> None:
        """Have the model read the prompt where someone edits or looks, unless that is done or being answered."""
        if request not in (self._place, self._requests.running(request.uri)):
            self._schedule(PREFETCH_DELAY_SECONDS, partial(self._read_prompt, request))
            self._place = request

    def complete_ahead(self, request: CompletionRequest, result: CompletionResult) -> None:
        """Answer the request that follows if the best draft is accepted."""
        if result.completions and result.seconds <= _MAX_AHEAD_SECONDS:
            self._schedule(AHEAD_DELAY_SECONDS, partial(self._complete, request, result))
        self._place = request

    def stop(self, request: CompletionRequest | None = None) -> None:
        """Cancel what is scheduled or running, unless it answers this request."""
        if self._task is not None and not (request and self._requests.running(request.uri) == request):
            self._task.cancel()
            self._place = None

    def _schedule(self, delay: float, work: Callable[[], Awaitable[None]]) -> None:
        self.stop()
        self._task = asyncio.ensure_future(self._run(delay, work))

    async def _run(self, delay: float, work: Callable[[], Awaitable[None]]) -> None:
        """Failures are logged."""
        await asyncio.sleep(delay)
        if self._requests.busy:
            self._place = None
            return
        try:
            await work()
        except Cancelled:
            pass
        except Exception as error:
            log.error("prefetch failed: %s", safe_traceback(error))

    async def _read_prompt(self, request: CompletionRequest) -> None:
        cancel = CancellationToken()
        work = partial(self._worker.prefetch, request, cancel.check)
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker.executor, work)
        finally:
            cancel.cancel(CancelReason.SUPERSEDED)

    async def _complete(self, request: CompletionRequest, result: CompletionResult) -> None:
        following = after_accepting(request, result.completions[0])
        if self._recent.find(following, self._worker.is_current) is None:
            work = partial(self._worker.complete_ahead, following, shown=(request, result))
            await self._requests.run_ahead(following.uri, following, work)

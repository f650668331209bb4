"""The worker thread of a session: the only thread that uses its completer, and so needs no locks.

In: settings, requests and changed documents from the event loop. Out: completion results. Knows nothing of LSP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngram_builders.errors import UserError
from ngram_builders.registry.learnt_weights import Lesson, add_learnt_weight
from spd_lsp.completion.typed_along import CompletionRequest
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled
from spd_lsp.lsp.status import LOADING
from spd_lsp.models.checkpoint.hub import STARTER
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.output.safe_logging import safe_traceback, user_message
from spd_lsp.settings import NO_MODEL, Settings, is_server

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.offer import CompletionResult

    Report = Callable[[str], None]
    Load = Callable[[Settings, Report], Completer]
    Prepare = Callable[[Settings, Report], object]
    StandIn = Callable[[Settings], Completer | None]

log = logging.getLogger(__name__)


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

    def __init__(
        self,
        load: Load,
        stand_in: StandIn = lambda settings: None,
        prepare: Prepare = lambda settings, report: None,
    ) -> None:
        """`stand_in`: a completer that is there at once and answers while the model loads, if it takes long.

        `prepare`: fetches and checks a model, before the loaded one is let go.
        """
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="spd-lsp")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="spd-lsp-loader")
        self.changes = DocumentChanges()
        self.accepted: deque[Iterator[Lesson | None]] = (
            deque()
        )  # to learn from, step by step; each put and pop is atomic
        self.loaded_settings: Settings | None = None  # of the last completer that could be loaded
        self._make_completer = load
        self._make_stand_in = stand_in
        self._prepare = prepare
        self._completer: Completer | None = None
        self._is_stand_in = False

    @property
    def fingerprint(self) -> str | None:
        """What identifies the tokenizer of the loaded model; None without one."""
        completer = self._completer
        return completer.tokens.fingerprint if completer and self.has_model else None

    @property
    def has_model(self) -> bool:
        """Whether there is a completer that does not just stand in."""
        return self._completer is not None and not self._is_stand_in

    @property
    def can_answer(self) -> bool:
        """Whether there is a completer, be it one that stands in."""
        return self._completer is not None

    async def load(self, settings: Settings, report: Report, cancel: CancellationToken) -> str:
        """Replace the completer, which answers until then; what went wrong, or an empty string.

        `report` is called on the event loop.
        """
        loop = asyncio.get_running_loop()

        def report_or_stop(text: str) -> None:
            cancel.check()
            loop.call_soon_threadsafe(report, text)

        async def call(work: Callable[[Settings, Report], Any]) -> tuple[Any, str]:
            return await loop.run_in_executor(self._loader, self._attempt, work, settings, report_or_stop, cancel)

        report(LOADING)
        if not self.has_model:
            await loop.run_in_executor(self.executor, self._stand_in, settings)
        _, problem = await call(self._prepare)
        if problem:
            return problem
        if not self._is_small:
            await loop.run_in_executor(self.executor, self._stand_in, settings)
        loaded, problem = await call(self._make_completer)
        if problem:
            return problem
        await loop.run_in_executor(self.executor, self._use, loaded)
        self.loaded_settings = settings
        return ""

    @property
    def _is_small(self) -> bool:
        """Whether the loaded model, if any, hardly needs memory; two large ones at once may not fit."""
        loaded = self.loaded_settings
        return (
            not self.has_model or loaded is None or loaded.model in (STARTER, NO_MODEL) or is_server(loaded.model)
        )

    def _stand_in(self, settings: Settings) -> None:
        """Let go of the completer."""
        self._use(None)
        try:
            self._use(self._make_stand_in(settings), is_stand_in=True)
        except Exception as error:
            log.error("nothing stands in for the model: %s", safe_traceback(error))

    def _use(self, completer: Completer | None, *, is_stand_in: bool = False) -> None:
        self._completer = completer
        self._is_stand_in = is_stand_in

    def _attempt(
        self,
        work: Callable[[Settings, Report], Any],
        settings: Settings,
        report: Report,
        cancel: CancellationToken,
    ) -> tuple[Any, str]:
        """In a thread of its own: what the work makes, and what went wrong."""
        try:
            made = work(settings, report)
            cancel.check()
        except Cancelled as cancelled:
            return None, str(cancelled)
        except Exception as error:
            return None, user_message(error, "loading the model")
        return made, ""

    def is_current(self, result: CompletionResult) -> bool:
        """Whether the index still says what the result was computed from. Called on the event loop."""
        if self._completer is None or self.changes.files:
            return False
        return result.index_revision == self._completer.index_revision

    def look_for_tables(self) -> None:
        """Serve the next request from the tables that there are now."""
        if self._completer is not None:
            self._completer.tables.reload_if_changed()

    def tables_for(self, path: Path | None, language: str | None) -> Sequence[str]:
        """The names of the tables that serve a file, open files among them if they do; none without a model."""
        if (completer := self._completer) is None:
            return ()
        self._update_index(completer)
        return completer.tables_for(path, language)

    def imported_files(self, document: OpenDocument) -> list[str]:
        """The files that a document imports, as far as tables know them; none without a model."""
        return self._completer.imported_files(document) if self._completer is not None else []

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
        self, request: CompletionRequest, cancel: CancellationToken, shown: CompletionRequest
    ) -> CompletionResult | None:
        """Answer a request that follows if something that is shown is accepted, and change nothing by that."""
        cancel.check()
        try:
            return self.complete(request, cancel)
        finally:
            if self._completer is not None:
                self._completer.resume(_document(shown), shown.cursor)

    def write_block(
        self, request: CompletionRequest, result: CompletionResult, cancel: CancellationToken
    ) -> CompletionResult:
        """Write the first completion of a result on to the end of the block that it opens."""
        cancel.check()
        if (completer := self._completer) is None:
            return result
        self._update_index(completer, request.uri)
        place = request.source, request.cursor, request.language, request.path
        longer = completer.write_block(*place, result, name=request.uri, check=cancel.check)
        log.info("block: %d passes", longer.passes - result.passes)
        return longer

    def prefetch(self, request: CompletionRequest, check: Callable[[], None]) -> None:
        """Have the model read the prompt of a request that may follow."""
        check()
        if (completer := self._completer) is not None:
            self._update_index(completer)
            count = completer.prefetch(_document(request), request.cursor, check)
            log.info("prefetch: %d prompt tokens read", count)

    def run_idle_work(self, seconds: float) -> bool:
        """Index changed documents and the like for about so long; whether there is more to do."""
        if (completer := self._completer) is None:
            return False
        self._update_index(completer)
        more = completer.run_idle_work(seconds)
        if self.accepted and not more:
            self._learn(completer)
        return more or bool(self.accepted)

    def _learn(self, completer: Completer) -> None:
        """Take a step of learning from what was accepted; another thread writes it, as disks may be slow."""
        try:
            lesson = next(self.accepted[0])
        except StopIteration:
            self.accepted.popleft()
        else:
            if lesson and (registry := completer.tables.registry):
                self._loader.submit(_write_learnt, registry.folder, lesson)

    def _update_index(self, completer: Completer, active: str = "") -> None:
        completer.update_documents(self.changes.drain(), active)
        if files := self.changes.drain_files():
            completer.update_files(files)

    def close(self) -> None:
        """End the thread and let go of the model."""
        for executor in (self._loader, self.executor):
            executor.shutdown(wait=False, cancel_futures=True)
        self._completer = None


def _write_learnt(registry: Path, lesson: Lesson) -> None:
    """Add to what was learnt; where it cannot be written it is lost."""
    try:
        add_learnt_weight(registry, *lesson)
    except (OSError, UserError) as error:
        log.debug("no weights are learnt: %s", error)


def _document(request: CompletionRequest) -> OpenDocument:
    return OpenDocument(request.uri, request.path, request.language, request.source)

"""Completion requests in plain values, and what answers one: a recent result, or a computation, new or running.

In: open documents and positions, and blocking work that polls `check`. Out: requests that can be compared, and
their results. Recent results are reused while someone types along with their drafts. At most one computation runs
for a document: equal requests share it, a newer one cancels it. Knows nothing of models.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import re
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from lsprotocol import types

from ngram_builders.sources.filters import normalize_line_ends
from spd_lsp.completion.postprocess import choose_completions
from spd_lsp.lsp.completion_items import CursorLine
from spd_lsp.lsp.documents import LspDocument, LspWorkspace
from spd_lsp.ngrams.open_documents import OpenDocument

if TYPE_CHECKING:
    from spd_lsp.completion.completer import CompletionResult
    from spd_lsp.completion.postprocess import Completion

Request = TypeVar("Request")
Result = TypeVar("Result")
Check = Callable[[], None]
Work = Callable[[Check], Result]

_MAX_RESULTS = 16
_COMPLETE = "the best draft is typed out"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What the editor says that a completion depends on: equal requests share one result."""

    source: str
    cursor: int  # offset in code points
    language: str | None
    path: Path | None
    uri: str
    explicit: bool  # the user asked for it, it was not triggered by typing
    others: frozenset[int] = frozenset()  # revisions of the other open documents

    def joined_with(self, running: CompletionRequest | None) -> CompletionRequest:
        """The running request if the user made it for the same place: ghost text must not cancel its menu."""
        return running if running and running == dataclasses.replace(self, explicit=True) else self


def request_at(
    workspace: LspWorkspace,
    document: LspDocument,
    cursor: int,
    disabled_languages: Collection[str],
    *,
    explicit: bool = False,
) -> CompletionRequest:
    """A request at an offset in a document, which may be a part of a longer text.

    Lone surrogates, which no tokenizer can encode, become question marks.
    """
    whole, start = workspace.whole_text(document)
    source = whole.text
    if not source.isascii():
        source = source.encode("utf-8", "replace").decode()
    others = _other_revisions(workspace, document, disabled_languages)
    return CompletionRequest(source, start + cursor, whole.language, whole.path, whole.name, explicit, others)


def _other_revisions(
    workspace: LspWorkspace, document: LspDocument, disabled_languages: Collection[str]
) -> frozenset[int]:
    """The revisions of the other documents that count."""
    own = workspace.parts(document)
    others = (other for other in workspace.documents if other not in own)
    return frozenset(other.revision for other in others if _is_indexable(other, disabled_languages))


def with_selected(
    request: CompletionRequest, document: LspDocument, cursor: int, selected: types.SelectedCompletionInfo
) -> CompletionRequest:
    """The request as if the menu's selected item had been accepted, which ghost text continues."""
    start_of_document = request.cursor - cursor
    start = start_of_document + document.offset_at_position(selected.range.start)
    end = max(start, start_of_document + document.offset_at_position(selected.range.end))
    source = request.source[:start] + selected.text + request.source[end:]
    return dataclasses.replace(request, source=source, cursor=start + len(selected.text))


def after_accepting(request: CompletionRequest, draft: Completion) -> CompletionRequest:
    """The request that follows if a draft is accepted: at its end or, if that ends the line, on the next one."""
    text = draft.text
    if draft.ends:
        text += _next_line((request.source[: request.cursor] + text).rpartition("\n")[2])
    source = request.source[: request.cursor] + text + request.source[request.cursor :]
    return dataclasses.replace(request, source=source, cursor=request.cursor + len(text), explicit=False)


def _next_line(line: str) -> str:
    """A line end and the indentation that editors give the next line. Example: "  if x:" -> "\\n      "."""
    indentation = line[: len(line) - len(line.lstrip())]
    deeper = line.rstrip().endswith((":", "{", "(", "["))
    return f"\n{indentation}" + deeper * ("\t" if "\t" in indentation else "    ")


class RecentResults:
    """The latest results of a session, which also answer whoever types along with one of their drafts."""

    def __init__(self) -> None:
        self._results: list[tuple[CompletionRequest, CompletionResult]] = []  # the newest first

    def add(self, request: CompletionRequest, result: CompletionResult) -> CompletionResult:
        """Keep a result instead of the earlier one of an equal request, and return it."""
        kept = [one for one in self._results if one[0] != request]
        self._results = [(request, result), *kept][:_MAX_RESULTS]
        return result

    def drop(self, uri: str) -> None:
        """Forget a document's results."""
        self._results = [(request, result) for request, result in self._results if request.uri != uri]

    def clear(self) -> None:
        """Forget all results."""
        self._results.clear()

    def find(
        self, request: CompletionRequest, is_current: Callable[[CompletionResult], bool]
    ) -> CompletionResult | None:
        """The result of an equal request, or else what remains of the one that was typed along with least."""
        found: CompletionResult | None = None
        nearest = -1
        for previous, result in self._results:
            if nearest < previous.cursor <= request.cursor and is_current(result):
                left = remaining(previous, result, request)
                found, nearest = (left, previous.cursor) if left else (found, nearest)
        return found


def remaining(
    previous: CompletionRequest, result: CompletionResult, request: CompletionRequest
) -> CompletionResult | None:
    """What a result says beyond the text typed since, and names; None if none of its drafts continues that.

    Nothing is left to say where the best of those that do is typed out.
    Example: the result after `x = ` was `compute(y)`, `copy(y)`; after `x = co` there remain `mpute(y)`, `py(y)`.
    """
    typed = request.source[previous.cursor : request.cursor]
    if not _is_typed_on(previous, typed, request):
        return None
    if not typed:
        return dataclasses.replace(result, passes=0) if previous.explicit == request.explicit else None
    typed = normalize_line_ends(typed)
    drafts = (one for one in result.completions if one.text.startswith(typed) and not one.is_name)
    if (best := next(drafts, None)) and best.ends and best.text.rstrip() == typed.rstrip():
        return dataclasses.replace(result, completions=[], reason=_COMPLETE, passes=0)
    rest = result.after(typed)
    return _with_names(rest, result, request, typed) if rest.completions else None


def _with_names(
    rest: CompletionResult, result: CompletionResult, request: CompletionRequest, typed: str
) -> CompletionResult:
    """What is left of a result, and names that go on with what was typed; a draft that stood first stays so."""
    document = OpenDocument(request.uri, request.path, request.language, request.source)
    left = request.source[request.source.rfind("\n", 0, request.cursor) + 1 : request.cursor]
    word = re.split(r"\W", left)[-1]
    names = {
        word + name.text[len(typed) :]: name.probability  # of other files, which only the worker knows
        for name in result.completions
        if name.is_name and name.text.startswith(typed) and name.text != typed
    }
    stood = next(one for one in result.completions if one.text.startswith(typed[:-1]))  # before the last key
    first = rest.completions[: rest.keeps_first and not stood.is_name]
    names |= document.matching_names(request.cursor)
    offered = choose_completions(rest.completions, {}, names, left, result.limit + len(first))
    others = [one for one in offered if one not in first]
    return dataclasses.replace(rest, completions=[*first, *others][: result.limit])


def _is_typed_on(previous: CompletionRequest, typed: str, request: CompletionRequest) -> bool:
    """Whether nothing changed between two requests but the text typed at the cursor."""
    if len(previous.source) + len(typed) != len(request.source):
        return False
    source = previous.source[: previous.cursor] + typed + previous.source[previous.cursor :]
    return request == dataclasses.replace(
        previous, source=source, cursor=request.cursor, explicit=request.explicit
    )


def unfinished_word(before: str) -> str:
    """The word that a text ends in. Example: `x = ab` -> "ab"; `os.` -> ""."""
    start = len(before)
    while start and (before[start - 1].isalnum() or before[start - 1] == "_"):
        start -= 1
    return before[start:]


def cursor_line(document: LspDocument, cursor: int) -> CursorLine:
    """What completion items need to know about the cursor's line."""
    before = document.line_before(cursor)
    word = unfinished_word(before)
    start, end = map(document.client_position_at_offset, (cursor - len(word), cursor))
    return CursorLine(types.Range(start, end), word, before, document.language_id or "")


def indexable(workspace: LspWorkspace, disabled_languages: Collection[str]) -> Iterator[OpenDocument]:
    """The open texts whose n-grams may be counted, as they are now."""
    for document in workspace.documents:
        if _is_indexable(document, disabled_languages) and workspace.parts(document)[0] is document:
            yield workspace.whole_text(document)[0]


def _is_indexable(document: LspDocument, disabled_languages: Collection[str]) -> bool:
    return not document.may_hold_secrets and document.language_id not in disabled_languages


class CancelReason(enum.Enum):
    """Why a computation was cancelled."""

    CLIENT = "the editor cancelled the request"
    SUPERSEDED = "a newer request replaced it"
    SHUTDOWN = "the server is shutting down"


class Cancelled(Exception):
    """Raised by `CancellationToken.check` inside the work, and by `RequestScheduler.run` to its callers."""

    def __init__(self, reason: CancelReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class CancellationToken:
    """Set on the event loop, polled in the worker thread."""

    def __init__(self) -> None:
        self.reason: CancelReason | None = None

    def cancel(self, reason: CancelReason) -> None:
        """Ask the work to stop; the first reason stays."""
        self.reason = self.reason or reason

    def check(self) -> None:
        """Raise Cancelled after `cancel`. Cheap enough to call for every token."""
        if self.reason is not None:
            raise Cancelled(self.reason)


class _Job(Generic[Request, Result]):
    """One computation and the number of callers that wait for it."""

    def __init__(self, request: Request, cancel: CancellationToken, task: asyncio.Task[Result]) -> None:
        self.request = request
        self.cancel = cancel
        self.task = task
        self.waiting = 0

    def answers(self, request: Request) -> bool:
        """Whether it runs for an equal request."""
        return self.cancel.reason is None and not self.task.done() and self.request == request

    def stop(self, reason: CancelReason) -> None:
        """Cancel it: at once for its callers, within one step in the worker."""
        if not self.task.done():
            self.cancel.cancel(reason)
            self.task.cancel()


class RequestScheduler(Generic[Request, Result]):
    """The newest request of each document, a value that compares. For use on one event loop."""

    def __init__(self, worker: Executor) -> None:
        self._worker = worker
        self._jobs: dict[str, _Job[Request, Result]] = {}

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits to run."""
        return any(not job.task.done() for job in self._jobs.values())

    def running(self, uri: str) -> Request | None:
        """The document's request whose result is not known yet."""
        job = self._jobs.get(uri)
        return None if job is None or job.task.done() else job.request

    async def run(self, uri: str, request: Request, work: Work[Result], *, delay: float = 0.0) -> Result:
        """Run `work(check)` in the worker, or share the run of an equal request; a newer request cancels it.

        delay: seconds to wait before the work starts, during which a newer request replaces it for free.
        """
        job = self._jobs.get(uri)
        if job is None or not job.answers(request):
            self.drop(uri, CancelReason.SUPERSEDED)
            cancel = CancellationToken()
            job = _Job(request, cancel, asyncio.ensure_future(self._run(work, cancel, delay)))
            self._jobs[uri] = job
        job.waiting += 1
        try:
            return await asyncio.shield(job.task)
        except asyncio.CancelledError:
            if job.cancel.reason is None:
                raise  # this caller was cancelled, not the work
            raise Cancelled(job.cancel.reason) from None
        finally:
            job.waiting -= 1
            if not job.waiting:
                job.stop(CancelReason.CLIENT)

    def drop(self, uri: str, reason: CancelReason) -> None:
        """Cancel what runs for a document."""
        if (job := self._jobs.pop(uri, None)) is not None:
            job.stop(reason)

    def drop_all(self, reason: CancelReason) -> None:
        """Cancel everything."""
        for uri in list(self._jobs):
            self.drop(uri, reason)

    async def _run(self, work: Work[Result], cancel: CancellationToken, delay: float) -> Result:
        try:
            await asyncio.sleep(delay)
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, cancel.check)
        except asyncio.CancelledError:
            cancel.cancel(CancelReason.SHUTDOWN)  # the loop itself is ending, unless `stop` gave a reason
            raise

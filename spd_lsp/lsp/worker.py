"""The one thread that uses a completer, which therefore needs no locks.

In: work from the event loop, and the open documents. Out: results. Between requests it indexes, in slices: a
request waits for one at most. Knows neither LSP nor HTTP, whose servers use it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from spd_lsp.completion.typed_along import CompletionRequest
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.output.safe_logging import safe_traceback
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.offer import CompletionResult

_SLICE_SECONDS = 0.005  # longest that a request waits for idle work
_PAUSE_SECONDS = 0.003  # between two slices
# Between two looks for idle work, unless `wake` is called: twice as long after each.
_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 1.0, 16.0

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Cancelled(Exception):
    """Raised in the thread to end work whose result is no longer needed."""


class CancellationToken:
    """Set on the event loop, polled in the thread."""

    def __init__(self) -> None:
        self.has_begun = False  # whether the thread has begun the work
        self.is_cancelled = False
        self.typed = ""  # at the cursor since the work began

    def check(self) -> None:
        """Raise Cancelled once the result is no longer needed. Cheap enough to call for every token."""
        self.has_begun = True
        if self.is_cancelled:
            raise Cancelled

    def check_typed(self, fits: Callable[[str], bool]) -> None:
        """Raise Cancelled if what was typed since does not fit what the work has found so far."""
        if self.typed and not fits(self.typed):
            raise Cancelled


class Worker:
    """A thread, and its completer once that is loaded."""

    def __init__(self, completer: Completer | None = None) -> None:
        self.completer = completer
        self.opened: Mapping[str, OpenDocument] = {}  # the documents to count, replaced as they change
        self._counted: Mapping[str, OpenDocument] = {}  # as the completer knows them
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spd-lsp")
        self._waiting = 0  # callers of `run` that wait for a result
        self._idle: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()  # since the last slice began, which may have looked for work before

    # On the event loop:

    async def run(
        self, work: Callable[..., Result], *arguments: object, token: CancellationToken | None = None
    ) -> Result:
        """What `work` returns in the thread. Its last argument is the token, cancelled once nobody waits."""
        token = token or CancellationToken()
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments, token))
        finally:
            self._waiting -= 1
            token.is_cancelled = True

    async def use(self, completer: Completer | None) -> None:
        """Complete with another completer, which knows no documents yet, or with none."""

        def replace(token: CancellationToken) -> None:
            self.completer = completer
            self._counted = {}

        await self.run(replace)

    def submit(self, work: Callable[..., object], *arguments: object) -> None:
        """Have the thread do something without a result."""
        self._thread.submit(work, *arguments)

    def wake(self) -> None:
        """Run idle work soon, and look for more now and then: other programs change files and tables, too."""
        self._woken.set()
        if self._idle is None or self._idle.done():
            self._idle = asyncio.ensure_future(self._work_while_idle())

    def close(self) -> None:
        """Begin no more work, and let go of the completer."""
        if self._idle is not None:
            self._idle.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.completer = None

    async def _work_while_idle(self) -> None:
        more = False
        pause = _LOOK_SECONDS
        while True:
            if not more:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), pause)
                pause = _LOOK_SECONDS if self._woken.is_set() else min(2 * pause, _LONGEST_LOOK_SECONDS)
            await asyncio.sleep(_PAUSE_SECONDS)
            if self._waiting:
                more = True
            else:
                self._woken.clear()
                more = await asyncio.get_running_loop().run_in_executor(self._thread, self._run_slice)

    # In the thread:

    def _run_slice(self) -> bool:
        """Index what changed for a moment; whether there is more to do. A failure ends it until the next look."""
        try:
            self.update_index()
            return self.completer is not None and self.completer.run_idle_work(_SLICE_SECONDS)
        except Exception as error:
            log.error("idle work failed: %s", safe_traceback(error))
            return False

    def apply_settings(self, settings: Settings) -> None:
        """Complete with these settings from now on; model and tables stay."""
        if self.completer is not None:
            self.completer.apply_settings(settings)

    def update_files(self, files: Sequence[Path]) -> None:
        """Count files as they are on the disk now."""
        if self.completer is not None:
            self.completer.update_files(files)

    def complete(self, request: CompletionRequest, token: CancellationToken) -> CompletionResult:
        """Answer a request."""
        result = self._begin(token, request.uri).complete(
            request.source,
            request.cursor,
            request.language,
            request.path,
            name=request.uri,
            explicit=request.explicit,
            check=token.check,
            check_typed=token.check_typed,
        )
        prompt = result.prompt_tokens, result.read_tokens
        sizes = len(result.completions), result.passes, *prompt, result.seconds * 1000
        log.info("completion: %d drafts, %d passes, %d prompt tokens, %d of them read, %.0f ms", *sizes)
        return result

    def complete_ahead(
        self, shown: CompletionRequest, request: CompletionRequest, token: CancellationToken
    ) -> CompletionResult:
        """Answer a request that may follow the one that is shown; the index keeps the document as it is."""
        completer = self._begin(token, request.uri)
        try:
            return self.complete(request, token)
        finally:
            completer.resume(_document(shown), shown.cursor)

    def write_block(
        self, request: CompletionRequest, result: CompletionResult, token: CancellationToken
    ) -> CompletionResult:
        """Write the first completion of a result on to the end of the block that it opens."""
        completer = self._begin(token, request.uri)
        place = request.source, request.cursor, request.language, request.path
        longer = completer.write_block(*place, result, name=request.uri, check=token.check)
        log.info("block: %d passes", longer.passes - result.passes)
        return longer

    def prefetch(self, request: CompletionRequest, token: CancellationToken) -> None:
        """Have the model read the prompt of a request that may follow."""
        count = self._begin(token).prefetch(_document(request), request.cursor, token.check)
        log.info("prefetch: %d prompt tokens read", count)

    def _begin(self, token: CancellationToken, active: str = "") -> Completer:
        """The completer, once it knows the open documents; Cancelled if there is none."""
        token.check()
        if self.completer is None:
            raise Cancelled
        self.update_index(active)
        return self.completer

    def update_index(self, active: str = "") -> bool:
        """Count the open documents as they are now, but for the active one, which its request counts.

        Returns whether any has changed.
        """
        opened, known = self.opened, self._counted
        if self.completer is None or opened is known:
            return False
        changes: dict[str, OpenDocument | None] = dict.fromkeys(known.keys() - opened.keys())
        changes |= {name: document for name, document in opened.items() if known.get(name) != document}
        self._counted = opened
        self.completer.update_documents(changes, active)
        return bool(changes)


def _document(request: CompletionRequest) -> OpenDocument:
    return OpenDocument(request.uri, request.path, request.language, request.source)

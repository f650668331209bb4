"""The completer behind the server, which one thread uses.

In: what a client wants, in no API's words. Out: alternatives, best first, and their cost. Knows nothing of HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.draft_text import MAX_BLOCK_TOKENS
from spd_lsp.completion.exclusions import exclusion_reason, language_id
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.http.open_files import OpenFiles
from spd_lsp.lsp.worker import CancellationToken, Worker
from spd_lsp.ngrams.open_documents import OpenDocument

_UNNAMED = "untitled:http"  # a text whose client does not say where it is from
_INDEX_SECONDS = 0.1  # longest that files which come along may delay their request

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client asks for."""

    before: str  # the cursor
    after: str = ""
    path: str = ""  # of the file, if it is known
    language: str = ""  # likewise
    others: Sequence[tuple[str, str]] = ()  # names and texts of other files
    alternatives: int = 1  # at most
    drafts: int = 0  # to choose from; 0: as many as editors get, or as alternatives
    max_tokens: int | None = None  # never more than the setting
    line_seconds: float | None = None  # of writing, after which a whole line is enough
    stop: Sequence[str] = ()  # texts before which a completion ends
    unasked: bool = False  # whether silence is better than an unlikely completion


@dataclass(frozen=True, slots=True)
class Alternative:
    """A text for the cursor's place."""

    text: str
    tokens: int
    probability: float | None  # that exactly this will be written; None where more is to follow
    ends: bool  # whether it ends by itself, and not by the limit of tokens
    stop: str = ""  # the text before which it was cut


@dataclass(frozen=True, slots=True)
class Answer:
    """Alternatives, best first and perhaps none, and what they cost."""

    alternatives: Sequence[Alternative]
    found: CompletionResult
    reading_seconds: float = 0.0  # of the prompt

    @property
    def writing_seconds(self) -> float:
        """All but reading the prompt."""
        return max(0.0, self.found.seconds - self.reading_seconds)


@dataclass(slots=True)
class _Progress:
    """One request's work, as its checks see it: whether to go on, and when the prompt was read."""

    positions_read: Callable[[], int]
    line_seconds: float | None
    token: CancellationToken
    started: float = field(default_factory=time.perf_counter)
    read_at: float = 0.0
    read: int = 0

    def __post_init__(self) -> None:
        self.read_at, self.read = self.started, self.positions_read()

    def check(self) -> None:
        """Called before each pass; the prompt was read when the number of positions last changed."""
        self.token.check()
        if (read := self.positions_read()) != self.read:
            self.read = read
            self.read_at = time.perf_counter()

    def is_late(self) -> bool:
        """Whether writing has taken as long as the client wants to wait for more than a line."""
        return self.line_seconds is not None and time.perf_counter() - self.read_at > self.line_seconds


class Completions:
    """The completer that serves requests, one after another."""

    def __init__(self, completer: Completer, folder: Path) -> None:
        """`folder`: what relative paths are relative to."""
        self._completer = completer
        self._settings = self._applied = completer.settings  # with those tuned for the model
        self._files = OpenFiles(folder)
        self._active = ""
        self.worker = Worker(completer)

    async def complete(self, wanted: Wanted) -> Answer:
        """Answer; to be cancelled if nobody waits for it any more."""
        token = CancellationToken()
        return await self.worker.run(partial(self._complete, wanted, token), token)

    async def read_ahead(self, wanted: Wanted) -> int:
        """Read files and prompt, so that the next request need not; how many tokens were read."""
        token = CancellationToken()
        return await self.worker.run(partial(self._read_ahead, wanted, token), token)

    # In the thread:

    def _complete(self, wanted: Wanted, token: CancellationToken) -> Answer:
        completer = self._completer
        progress = self._begin(wanted, token)
        document = self._show(wanted)
        path = document.path
        if reason := exclusion_reason(path or PurePath(), self._settings, document.language):
            return Answer((), CompletionResult([], reason=reason))
        found = completer.complete(
            document.text,
            len(wanted.before),
            document.language,
            path,
            name=document.name,
            explicit=not (wanted.unasked and document.language),
            check=progress.check,
        )
        if (wanted.max_tokens or MAX_BLOCK_TOKENS) >= MAX_BLOCK_TOKENS and not progress.is_late():
            place = document.text, len(wanted.before), document.language, path
            found = completer.write_block(*place, found, name=document.name, check=progress.check)
        sizes = len(found.completions), found.passes, found.prompt_tokens, found.read_tokens, found.seconds * 1000
        log.info("completion: %d drafts, %d passes, %d prompt tokens, %d of them read, %.0f ms", *sizes)
        alternatives = self._alternatives(found.completions, wanted.stop)[: wanted.alternatives]
        return Answer(alternatives, found, progress.read_at - progress.started)

    def _read_ahead(self, wanted: Wanted, token: CancellationToken) -> int:
        progress = self._begin(wanted, token)
        document = self._show(wanted)
        if not wanted.before.strip() or exclusion_reason(
            document.path or PurePath(), self._settings, document.language
        ):
            return 0
        return self._completer.prefetch(document, len(wanted.before), progress.check)

    def _begin(self, wanted: Wanted, token: CancellationToken) -> _Progress:
        """Make the request's settings those of the completer."""
        drafts = max(wanted.alternatives, wanted.drafts or self._settings.drafts)
        max_tokens = min(self._settings.max_tokens, wanted.max_tokens or self._settings.max_tokens)
        settings = replace(self._settings, drafts=drafts, max_tokens=max_tokens)
        if settings != self._applied:
            self._completer.apply_settings(settings)
            self._applied = settings
        progress = _Progress(lambda: self._completer.model.positions_read, wanted.line_seconds, token)
        progress.check()
        return progress

    def _show(self, wanted: Wanted) -> OpenDocument:
        """Count the files that came along; the document to complete."""
        changes = self._files.show(wanted.others)
        text = wanted.before + wanted.after
        path = self._files.place(wanted.path) if wanted.path else None
        if path is None and not wanted.language:
            path = self._files.place_of(text)
        name = path.absolute().as_uri() if path else _UNNAMED
        if self._active and self._active != name:
            changes[self._active] = None
        self._active = name
        self._completer.update_documents(changes, active=name)
        if changes:
            self._completer.run_idle_work(_INDEX_SECONDS)  # else this request would not see them
        language = wanted.language or (language_id(path) if path else None)
        return OpenDocument(name, path, language, text)

    def _alternatives(self, completions: Sequence[Completion], stop: Sequence[str]) -> list[Alternative]:
        """Each text once, cut before the texts that the client wants to stop at."""
        found: dict[str, Alternative] = {}
        for one in completions:
            at, stopped = min(
                ((one.text.find(word), word) for word in stop if word in one.text), default=(None, "")
            )
            text = one.text[:at]
            probability = one.shown_probability if at is None else None
            tokens = self._completer.tokens.count(text)
            found.setdefault(text, Alternative(text, tokens, probability, one.ends or bool(stopped), stopped))
        return list(found.values())

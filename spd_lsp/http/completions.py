"""The completer behind the server, which one thread uses.

In: the text around a cursor, and what a client says of its file and of others. Out: alternatives, best first, and
their cost. Knows nothing of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Annotated

from msgspec import Meta, Struct

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.draft_text import MAX_BLOCK_TOKENS
from spd_lsp.completion.exclusions import exclusion_reason, language_id
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.completion.typed_along import CompletionRequest
from spd_lsp.lsp.worker import CancellationToken, Worker
from spd_lsp.models.base import Engine
from spd_lsp.ngrams.open_documents import OpenDocument

_UNNAMED = "untitled:http"  # a text whose client does not say where it is from
_INDEX_SECONDS = 0.1  # longest that files which come along may delay their request
_MAX_REMEMBERED = 32  # files that were sent
_MIN_LINE = 8  # characters of a line that says something about where it stands

Count = Annotated[int, Meta(ge=1, le=16)]  # of alternatives, as the setting `drafts`


class OtherFile(Struct):
    """A file that comes along, or a part of it."""

    filename: str = ""
    text: str = ""


class Fields(Struct):
    """The fields of a request that all of our APIs share; unknown ones are ignored."""

    path: str = ""
    language: str = ""
    input_extra: tuple[OtherFile, ...] = ()
    n: Count = 1
    stop: str | list[str] = ""

    @property
    def stops(self) -> list[str]:
        """The texts before which a completion ends."""
        return [one for one in ([self.stop] if isinstance(self.stop, str) else self.stop) if one]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client asks for."""

    before: str  # the cursor
    after: str
    fields: Fields
    alternatives: int  # at most
    explicit: bool  # a person asks, for whom an unlikely completion is better than silence
    max_tokens: int = MAX_BLOCK_TOKENS  # and never more than the setting
    line_seconds: float = 0.0  # of writing, after which a whole line is enough; 0: no limit


class _Clock(CancellationToken):
    """Also measures how long the prompt is read: until the number of positions read no longer changes."""

    def __init__(self, model: Engine) -> None:
        super().__init__()
        self._model = model
        self._read = 0

    def start(self) -> None:
        """Begin to measure, in the thread."""
        self.started = self.read_at = time.perf_counter()
        self._read = self._model.positions_read

    def check(self) -> None:
        """As every token; called before each pass."""
        CancellationToken.check(self)
        if (read := self._model.positions_read) != self._read:
            self._read, self.read_at = read, time.perf_counter()


class Completions:
    """The completer that serves requests, one after another."""

    def __init__(self, completer: Completer, folder: Path) -> None:
        """`folder`: what relative paths are relative to."""
        self.worker = Worker(completer)
        self._completer = completer
        self._settings = self._applied = completer.settings  # with those tuned for the model
        self._folder = folder
        self._sent: dict[str, str] = {}  # texts of files by name, the latest last

    async def complete(self, wanted: Wanted) -> tuple[CompletionResult, float]:
        """Answer, and the seconds for the prompt; to be cancelled if nobody waits for it any more."""
        return await self.worker.run(self._complete, wanted, token=_Clock(self._completer.model))

    async def read_ahead(self, wanted: Wanted) -> None:
        """Read files and prompt, so that the next request need not."""
        await self.worker.run(self._read_ahead, wanted)

    # In the thread:

    def _complete(self, wanted: Wanted, clock: _Clock) -> tuple[CompletionResult, float]:
        clock.start()
        request = self._begin(wanted)
        if reason := exclusion_reason(request.path or PurePath(), self._settings, request.language):
            return CompletionResult([], reason=reason), 0.0
        found = self.worker.complete(request, clock)
        assert found  # the worker has had its completer from the start
        is_late = 0 < wanted.line_seconds < time.perf_counter() - clock.read_at
        if wanted.max_tokens >= MAX_BLOCK_TOKENS and not is_late:
            found = self.worker.write_block(request, found, clock)
        alternatives: dict[str, Completion] = {}
        for one in found.completions:
            cut = _cut(one, wanted.fields.stops)
            alternatives.setdefault(cut.text, cut)
        found = replace(found, completions=list(alternatives.values())[: wanted.alternatives])
        return found, clock.read_at - clock.started

    def _read_ahead(self, wanted: Wanted, token: CancellationToken) -> None:
        request = self._begin(wanted)
        if not exclusion_reason(request.path or PurePath(), self._settings, request.language):
            self.worker.prefetch(request, token)

    def _begin(self, wanted: Wanted) -> CompletionRequest:
        """Apply a request's settings, and count the files that came along; the request in the worker's words."""
        drafts = max(wanted.alternatives, self._settings.drafts)
        max_tokens = min(wanted.max_tokens, self._settings.max_tokens)
        settings = replace(self._settings, drafts=drafts, max_tokens=max_tokens)
        if settings != self._applied:
            self.worker.apply_settings(settings)
            self._applied = settings

        sent: dict[str, str] = {}
        for one in wanted.fields.input_extra:
            name = one.filename or "tmp"
            sent[name] = f"{sent[name]}\n{one.text}" if name in sent else one.text
        earlier = {name: text for name, text in self._sent.items() if name not in sent}
        self._sent = dict(list({**earlier, **sent}.items())[-_MAX_REMEMBERED:])

        text = wanted.before + wanted.after
        path = self._folder / wanted.fields.path if wanted.fields.path else None
        if path is None and not wanted.fields.language:
            path = self._place_of(text)
        uri = path.absolute().as_uri() if path else _UNNAMED
        language = wanted.fields.language.lower() or (language_id(path) if path else None)
        documents = [OpenDocument(name, None, language_id(PurePath(name)), text) for name, text in sent.items()]
        documents.append(OpenDocument(uri, path, language, text))
        self.worker.opened = {document.name: document for document in documents}
        if self.worker.update_index(uri):
            self._completer.run_idle_work(_INDEX_SECONDS)  # else this request would not see them
        return CompletionRequest(text, len(wanted.before), language, path, uri, wanted.explicit or not language)

    def _place_of(self, text: str) -> Path | None:
        """A place beside the file that has most lines in common with a text; None if none has any.

        Not the file's own: the text is only a part of it, and its table counts all of it.
        """
        lines = _long_lines(text)
        shared = {name: len(lines & _long_lines(sent)) for name, sent in reversed(self._sent.items())}
        name = max(shared, key=lambda name: shared[name], default="")
        if not shared.get(name):
            return None
        file = self._folder / name
        return file.with_name(f"untitled{file.suffix}")


def _cut(one: Completion, stops: Sequence[str]) -> Completion:
    """A completion that ends before the first of the texts that the client wants to stop at."""
    at = min((one.text.find(stop) for stop in stops if stop in one.text), default=None)
    return one if at is None else replace(one, text=one.text[:at], ends=True, is_rated=False)


def _long_lines(text: str) -> set[str]:
    return {line for line in map(str.strip, text.splitlines()) if len(line) >= _MIN_LINE}

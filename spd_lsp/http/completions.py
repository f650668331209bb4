"""Answers queries with the completer of this process, one after another, in one thread.

In: the text around a cursor, the path of its file and the texts of others, where a client sends them. Out: a
completer's result, and how long the prompt took. Knows nothing of HTTP.
"""

from __future__ import annotations

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
from spd_lsp.ngrams.open_documents import OpenDocument

_UNNAMED = "untitled:http"  # a text without a path
_INDEX_SECONDS = 0.1  # that indexing the files of a request may delay it
_MAX_REMEMBERED = 32  # files of earlier requests
_MIN_LINE = 8  # characters of a line by which a file is recognized

Count = Annotated[int, Meta(ge=1, le=16)]  # of alternatives, as the setting `drafts`


class OtherFile(Struct):
    """Another file of the client, or a part of it."""

    filename: str = ""
    text: str = ""


class Fields(Struct):
    """The fields of a request that both APIs share; unknown ones are ignored."""

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
class Query:
    """A request, in no API's words."""

    before: str  # text left of the cursor
    after: str  # and right of it
    fields: Fields
    alternatives: int  # maximum number of completions
    explicit: bool  # whether a person asked, who gets unlikely completions, too
    max_tokens: int = MAX_BLOCK_TOKENS  # of a completion; the setting is a limit as well
    line_seconds: float = 0.0  # of writing, after which a line is not written on to a block; 0: no limit


class Completions:
    """The completer, its worker, and the files that clients sent."""

    def __init__(self, completer: Completer, folder: Path) -> None:
        """`folder`: what relative paths are relative to."""
        self.worker = Worker(completer)
        self._completer = completer
        self._settings = self._applied = completer.settings  # with those tuned for the model
        self._folder = folder
        self._sent: dict[str, str] = {}  # texts of files by name, the latest last

    async def complete(self, query: Query) -> tuple[CompletionResult, float]:
        """Answer, and the seconds for the prompt; to be cancelled if nobody waits for it any more."""
        return await self.worker.run(self._complete, query)

    async def read_ahead(self, query: Query) -> None:
        """Index the files of a query and read its prompt, for the next query at that place."""
        await self.worker.run(self._read_ahead, query)

    # In the thread:

    def _complete(self, query: Query, token: CancellationToken) -> tuple[CompletionResult, float]:
        request = self._begin(query)
        if reason := exclusion_reason(request.path or PurePath(), self._settings, request.language):
            return CompletionResult([], reason=reason), 0.0
        before = self._completer.model.seconds_in_passes
        found = self.worker.complete(request, token)
        writing = self._completer.model.seconds_in_passes - before
        reading = max(0.0, found.seconds - writing)
        is_late = 0 < query.line_seconds < writing
        if query.max_tokens >= MAX_BLOCK_TOKENS and not is_late:
            found = self.worker.write_block(request, found, token)
        alternatives: dict[str, Completion] = {}
        for one in found.completions:
            cut = _cut(one, query.fields.stops)
            alternatives.setdefault(cut.text, cut)
        found = replace(found, completions=list(alternatives.values())[: query.alternatives])
        return found, reading

    def _read_ahead(self, query: Query, token: CancellationToken) -> None:
        request = self._begin(query)
        if not exclusion_reason(request.path or PurePath(), self._settings, request.language):
            self.worker.prefetch(request, token)

    def _begin(self, query: Query) -> CompletionRequest:
        """Apply the settings of a query and index its files; the query as the worker's request."""
        drafts = max(query.alternatives, self._settings.drafts)
        max_tokens = min(query.max_tokens, self._settings.max_tokens)
        settings = replace(self._settings, drafts=drafts, max_tokens=max_tokens)
        if settings != self._applied:
            self.worker.apply_settings(settings)
            self._applied = settings

        sent: dict[str, str] = {}
        for one in query.fields.input_extra:
            name = one.filename or "tmp"
            sent[name] = f"{sent[name]}\n{one.text}" if name in sent else one.text
        earlier = {name: text for name, text in self._sent.items() if name not in sent}
        self._sent = dict(list({**earlier, **sent}.items())[-_MAX_REMEMBERED:])

        text = query.before + query.after
        path = self._folder / query.fields.path if query.fields.path else None
        if path is None and not query.fields.language:
            path = self._place_of(text)
        uri = path.absolute().as_uri() if path else _UNNAMED
        language = query.fields.language.lower() or (language_id(path) if path else None)
        documents = [OpenDocument(name, None, language_id(PurePath(name)), text) for name, text in sent.items()]
        documents.append(OpenDocument(uri, path, language, text))
        self.worker.opened = {document.name: document for document in documents}
        if self.worker.update_index(uri):
            self._completer.run_idle_work(_INDEX_SECONDS)  # else this request would not see them
        return CompletionRequest(text, len(query.before), language, path, uri, query.explicit or not language)

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

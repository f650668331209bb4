"""A completion request in plain values, and the previous result reused while someone types along with it.

In: open documents and positions. Out: requests that can be compared. Knows nothing of models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from ngram_builders.sources.filters import normalize_line_ends
from spd_lsp.lsp.completion_items import CursorLine
from spd_lsp.lsp.documents import LspDocument
from spd_lsp.ngrams.document_changes import OpenDocument

if TYPE_CHECKING:
    from spd_lsp.completion.completer import CompletionResult
    from spd_lsp.completion.postprocess import Completion


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """All that a completion depends on: equal requests share one result."""

    source: str
    cursor: int  # offset in code points
    language: str | None
    path: Path | None
    uri: str
    explicit: bool  # the user asked for it, it was not triggered by typing


def request_at(document: LspDocument, cursor: int, *, explicit: bool) -> CompletionRequest:
    """A request at an offset. Lone surrogates, which no tokenizer can encode, become question marks."""
    source = document.source
    if not source.isascii():
        source = source.encode("utf-8", "replace").decode()
    return CompletionRequest(source, cursor, document.language_id or None, document.file, document.uri, explicit)


def with_selected(
    request: CompletionRequest, document: LspDocument, selected: types.SelectedCompletionInfo
) -> CompletionRequest:
    """The request as if the menu's selected item had been accepted: ghost text must continue from it."""
    start = document.offset_at_position(selected.range.start)
    end = max(start, document.offset_at_position(selected.range.end))
    source = request.source[:start] + selected.text + request.source[end:]
    return dataclasses.replace(request, source=source, cursor=start + len(selected.text))


def remaining(
    previous: CompletionRequest, result: CompletionResult, request: CompletionRequest
) -> list[Completion]:
    """What the previous drafts say beyond the text typed since; nothing unless the best draft continues it.

    Example: the result after `x = ` was `compute(y)`, `copy(y)`; after `x = comp` there remains `ute(y)`.
    """
    typed = request.source[previous.cursor : request.cursor]
    if not typed or not _is_typed_on(previous, typed, request):
        return []
    typed = normalize_line_ends(typed)
    drafts = [
        dataclasses.replace(draft, text=draft.text[len(typed) :])
        for draft in result.completions
        if draft.text.startswith(typed) and draft.text[len(typed) :].strip()
    ]
    is_best_alive = drafts and result.completions[0].text.startswith(drafts[0].text, len(typed))
    return drafts if is_best_alive else []


def _is_typed_on(previous: CompletionRequest, typed: str, request: CompletionRequest) -> bool:
    """Whether nothing changed between two requests but the text typed at the cursor."""
    source = previous.source[: previous.cursor] + typed + previous.source[previous.cursor :]
    return request == dataclasses.replace(
        previous, source=source, cursor=request.cursor, explicit=request.explicit
    )


def cursor_line(document: LspDocument, cursor: int) -> CursorLine:
    """What completion items need to know about the cursor's line."""
    position = document.client_position_at_offset(cursor)
    return CursorLine(position, document.line_before(cursor), document.language_id or "")


def indexable(documents: Iterable[LspDocument], disabled_languages: Collection[str]) -> Iterator[OpenDocument]:
    """The open documents whose n-grams may be counted, as they are now."""
    for document in documents:
        if not document.may_hold_secrets and document.language_id not in disabled_languages:
            yield OpenDocument(document.uri, document.file, document.language_id or None, document.source)

"""What an editor's request asks of the completer, and the place that its answer goes to.

In: open documents and positions. Out: questions that can be compared, and plain values. Knows nothing of answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lsprotocol import types

from spd_lsp.lsp.completion_items import Place
from spd_lsp.lsp.documents import LspDocument, may_hold_secrets, path_of
from spd_lsp.ngrams.document_changes import Open


@dataclass(frozen=True, slots=True)
class Question:
    """All that a completion depends on: two requests that agree in it share one answer."""

    source: str
    cursor: int  # offset in code points
    language: str | None
    path: Path | None
    name: str  # of the document
    forced: bool


def question(document: LspDocument, cursor: int, forced: bool) -> Question:
    """What is asked of the completer. Half characters, which no tokenizer reads, become question marks."""
    source = document.source
    if not source.isascii():
        source = source.encode("utf-8", "replace").decode()
    return Question(source, cursor, document.language_id or None, path_of(document.uri), document.uri, forced)


def with_selected(asked: Question, document: LspDocument, selected: types.SelectedCompletionInfo) -> Question:
    """The question as if the menu's selected item had been accepted: ghost text must go on from it."""
    start = document.offset_at_position(selected.range.start)
    end = max(start, document.offset_at_position(selected.range.end))
    source = asked.source[:start] + selected.text + asked.source[end:]
    return dataclasses.replace(asked, source=source, cursor=start + len(selected.text))


def place_in(document: LspDocument, cursor: int) -> Place:
    """What the items need to know of the cursor's line."""
    position = document.client_position_at_offset(cursor)
    return Place(position, document.line_before(cursor), document.language_id or "")


def counted(documents: Iterable[LspDocument], disabled_languages: Collection[str]) -> Iterator[Open]:
    """The open documents whose n-grams may be counted, as they are now."""
    for document in documents:
        path, secret = judged(document.uri)
        if not secret and document.language_id not in disabled_languages:
            yield Open(document.uri, path, document.language_id or None, document.source)


@lru_cache(1000)
def judged(uri: str) -> tuple[Path | None, bool]:
    """A document's file, and whether it may hold secrets: asked of every document at every request."""
    return path_of(uri), may_hold_secrets(uri)

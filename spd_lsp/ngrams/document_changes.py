"""What an editor's documents say, handed from the event loop to the worker thread without a lock.

In: open documents as they are at a request. Out: those that changed since the worker last asked. Knows neither LSP
nor n-grams.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ngram_builders.sources.filters import normalize_line_ends


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """An open document at one moment."""

    name: str  # what tells it from others, such as its URI
    path: Path | None
    language: str | None
    text: str

    @property
    def plain(self) -> OpenDocument:
        """The same with "\\n" for every line end, which is all that tokens know."""
        return replace(self, text=normalize_line_ends(self.text)) if "\r" in self.text else self


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """What became of a document: what it says now, or None once it is closed; and whether its file was written."""

    document: OpenDocument | None
    saved: bool


class DocumentChanges:
    """One entry a document: the newest. Filled on the event loop, emptied in the worker."""

    def __init__(self) -> None:
        self.seen: dict[str, OpenDocument] = {}
        self.waiting: dict[
            str, DocumentChange
        ] = {}  # put in and taken out whole: both are one step of the interpreter

    def update(self, documents: Iterable[OpenDocument]) -> None:
        """Note which of the open documents changed, were opened or closed since the last look."""
        now = {document.name: document for document in documents}
        for name in self.seen.keys() - now.keys():
            self.waiting[name] = DocumentChange(None, self.was_saved(name))
        for name, document in now.items():
            if (before := self.seen.get(name)) is None or before.text is not document.text:
                self.waiting[name] = DocumentChange(document, self.was_saved(name))
        self.seen = now

    def mark_saved(self, name: str) -> None:
        """Note that a document was written to its file."""
        if (document := self.seen.get(name)) is not None:
            self.waiting[name] = DocumentChange(document, True)

    def was_saved(self, name: str) -> bool:
        """Whether a saving waits to be heard of."""
        news = self.waiting.get(name)
        return news is not None and news.saved

    def reset(self) -> None:
        """Say everything again: who listened is gone."""
        self.seen = {}

    def drain(self) -> dict[str, DocumentChange]:
        """What is new, each document once."""
        return {name: self.waiting.pop(name) for name in list(self.waiting)}

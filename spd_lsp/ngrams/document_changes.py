"""Changes of open documents and of files on disk, passed from the event loop to the worker thread without a lock.

In: all open documents, and files. Out: those that changed since the worker last drained them. Knows neither LSP
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

    name: str  # identifies the document, such as its URI
    path: Path | None
    language: str | None
    text: str

    @property
    def plain(self) -> OpenDocument:
        """The document with "\\n" for every line end, as tokenizers see it."""
        return replace(self, text=normalize_line_ends(self.text)) if "\r" in self.text else self


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """The new state of a document, None once it is closed, and whether it was saved."""

    document: OpenDocument | None
    saved: bool


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

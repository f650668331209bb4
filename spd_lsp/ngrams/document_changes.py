"""Open documents, the names in them, and their changes and those of files, passed to the worker without a lock.

In: all open documents, and files. Out: those that changed since the worker last drained them. Knows neither LSP
nor n-grams.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.masking import find_secrets

_NAME = re.compile(r"[^\W\d]\w{2,}")
_BEGUN_NAME = re.compile(r"(?<!\w)[^\W\d]\w+\Z")  # of two letters at least
_MAX_NAME_LENGTH = 80
_NAME_REACH = 200_000  # characters on each side of the cursor that are searched for names
_OTHER_WEIGHT = 0.1  # of all names in other open documents, against one occurrence in this one
_NEW_WEIGHT = 0.1  # of a name that stands nowhere yet
_MIN_PROBABILITY = 0.02  # a name below this is not worth a draft's place
_INDEXED_DOCUMENTS = 64


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

    def matching_names(self, cursor: int, others: Iterable[OpenDocument] = ()) -> Mapping[str, float]:
        """Return the names that the word at the cursor begins, likeliest first, and the probability of each.

        A name is the likelier the more often it stands here and the more recently above the cursor; those of
        other documents matter where there is none. Secrets are no names.
        """
        begun = _BEGUN_NAME.search(self.text, max(0, cursor - _MAX_NAME_LENGTH), cursor)
        if begun is None or re.match(r"\w", self.text[cursor : cursor + 1]):
            return {}
        found = re.compile(rf"(?<!\w){begun[0]}\w+")
        above = found.findall(self.text, max(0, cursor - _NAME_REACH), begun.start())
        below = found.findall(self.text, cursor, cursor + _NAME_REACH)
        counts = Counter([*above, *below])
        recent = dict.fromkeys([*reversed(above), *below])
        weights = {name: counts[name] / (1 + age) ** 0.5 for age, name in enumerate(recent)}
        elsewhere = {name for other in others for name in _names_from(_sorted_names(other.text), begun[0])}
        elsewhere -= weights.keys()
        weights |= dict.fromkeys(sorted(elsewhere), _OTHER_WEIGHT / max(len(elsewhere), 1))
        return _as_probabilities(weights, self.text)


def _as_probabilities(weights: Mapping[str, float], text: str) -> Mapping[str, float]:
    """Return the likeliest names first; of 565 that were offered, this share was meant."""
    secrets = [text[secret.start : secret.end] for secret in find_secrets(text)] if weights else []
    names = [name for name in weights if len(name) <= _MAX_NAME_LENGTH and not any(name in one for one in secrets)]
    total = sum(weights.values()) + _NEW_WEIGHT
    probabilities = {
        name: (weights[name] / total) ** 1.5 for name in sorted(names, key=lambda name: -weights[name])
    }
    return {name: probability for name, probability in probabilities.items() if probability >= _MIN_PROBABILITY}


@lru_cache(_INDEXED_DOCUMENTS)
def _sorted_names(text: str) -> list[str]:
    """Return the names of a text, without secrets, in order."""
    names = set(_NAME.findall(text))
    return sorted(names.difference(*(_NAME.findall(text[one.start : one.end]) for one in find_secrets(text))))


def _names_from(names: list[str], start: str) -> list[str]:
    """Return the longer names that begin with `start`, of sorted ones."""
    first, last = bisect_left(names, start), bisect_left(names, start + chr(0x10FFFF))
    return [name for name in names[first:last] if name != start]


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

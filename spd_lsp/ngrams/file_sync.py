"""Keeps one n-gram domain up to date with its files: what changed on disk since the build is counted too.

In: the contents of the domain's table, file by file, and the disk. Out: a ledger whose overlay holds the
difference. Nothing is written: after a restart the files are scanned again. Knows nothing of editors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ngram_builders.arrays import Ints
from ngram_builders.counting.tokenize import text_digest
from ngram_builders.errors import UserError
from ngram_builders.ngrams import stream
from ngram_builders.registry.domains import Domain
from ngram_builders.sources.discovery import SourceFile, skip_reason, walk_sources
from ngram_builders.sources.filters import EMPTY, UNREADABLE, NotSource, decode_source, read_file
from ngram_builders.sources.git_repository import checkout_state
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.table.overlay import CountedText, Ledger, Overlay
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer

State = tuple[int, int]  # a file's size and its time of change in nanoseconds

_MAX_DISK_SHARE = 0.5  # of an overlay's capacity for files changed on disk; the rest is for open ones
_FILES_PER_STEP = 64  # files checked between two pauses of a scan
MAX_DRIFT = 100_000  # n-grams in the overlay from which a rebuild is due; below, it costs next to nothing
MAX_CHANGED_FILES = 50  # or files; they need not have been read


class TableContents(Protocol):
    """What a domain's current table contains."""

    @property
    def files(self) -> dict[str, tuple[int, int, bytes]]:
        """Size, time of change and digest of every file, by path."""

    @property
    def is_old(self) -> bool:
        """Whether secrets are in the table that are masked now."""

    @property
    def documents(self) -> Sequence[Sequence[bytes | None]]:
        """The digests of each layer's texts, None where a later layer replaced one."""

    def ids(self, digest: bytes) -> Ints | None:
        """The ids of the text with that digest, if they are still known."""


def real_path(file: Path) -> str:
    """Return a file's path without links, by which domains know it."""
    try:
        return str(file.resolve())
    except (OSError, RuntimeError):  # a cycle of links
        return str(file)


def _state_of(path: str) -> State | None:
    """Return size and modification time of a file, or None if there is none."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


class DomainSync:
    """A domain and the current state of its files."""

    def __init__(
        self,
        domain: Domain,
        contents: TableContents,
        tokenizer: IncrementalTokenizer,
        *,
        end_of_text: int,
        vocab_size: int,
        is_open: Callable[[str], bool],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.domain = domain
        self.contents = contents
        self.tokenizer = tokenizer
        self.end_of_text = end_of_text
        self.is_open = is_open
        self.on_change = on_change  # called when other texts are counted than before
        files = contents.files
        self.states: dict[str, State] = {path: (size, time) for path, (size, time, _) in files.items()}
        held: dict[Hashable, Hashable] = {path: digest for path, (_, _, digest) in files.items()}
        self.ledger = Ledger(Overlay(vocab_size=vocab_size, orders=domain.orders), held, self.read)
        self.refused: dict[str, State] = {}  # files that are no source, as they were when last looked at
        self.inclusion: dict[str, bool] = {}
        self.changed: set[str] = set()  # files that changed, appeared or went since the table was built
        self.checkout = self._checkout()
        language = domain.recipe.get("language")
        self.wanted = related_languages(str(language)) if language else None

    def read(self, key: Hashable) -> tuple[Ints, ...] | None:
        """Return the token streams of a text that the table contains."""
        ids = self.contents.ids(key) if isinstance(key, bytes) else None
        return None if ids is None else (stream(ids, self.end_of_text),)

    @property
    def is_outdated(self) -> bool:
        """Whether the domain should be rebuilt."""
        overlay = self.ledger.overlay
        has_drifted = overlay.full or overlay.size > MAX_DRIFT or len(self.changed) > MAX_CHANGED_FILES
        return self.contents.is_old or has_drifted

    @property
    def is_checked_out_anew(self) -> bool:
        """Whether git has changed files since the last scan, most likely."""
        return self._checkout() != self.checkout

    def _checkout(self) -> list[object]:
        return [] if "package" in self.domain.recipe else [checkout_state(root) for root in self.domain.roots]

    def includes(self, path: str) -> bool:
        """Whether a build of the domain would count this file; asked of the disk once."""
        if path in self.states:
            return True
        if path not in self.inclusion:
            self.inclusion[path] = self._would_include(Path(path))
        return self.inclusion[path]

    def _would_include(self, path: Path) -> bool:
        """Whether a file that the table does not contain is one of its sources, or will be once it has text."""
        try:
            return language_of(path, self.wanted) in (self.wanted or {language_of(path)}) and any(
                skip_reason(path, root, self.wanted) in (None, EMPTY)
                for root in self.domain.roots
                if path.is_relative_to(root)
            )
        except (UserError, OSError):  # it is not there yet
            return False

    def scan(self) -> Iterator[None]:
        """Count what changed on disk, in small steps with a pause between them; nothing more once it is full."""
        self.inclusion.clear()
        self.checkout = self._checkout()
        missing, unread, changed = dict.fromkeys(self.states), [], []
        for root in self.domain.roots:
            for number, (path, verdict) in enumerate(walk_sources(str(root), self.wanted)):
                if number % _FILES_PER_STEP == 0:
                    yield
                if isinstance(verdict, SourceFile):
                    missing.pop(path, None)
                    if self.states.get(path, self.refused.get(path)) != (verdict.size, verdict.mtime_ns):
                        changed.append(path)
                elif verdict == UNREADABLE:
                    unread.append(path)
        gone = [path for path in missing if not path.startswith(tuple(unread)) and not self.is_open(path)]
        self._note(changed, gone)
        for path in gone:
            self._apply(path, None, None)
            yield
        for path in changed:
            if self.ledger.overlay.full:
                return
            yield from self.sync_file(path)
            yield

    def note_changed(self, paths: Sequence[str]) -> None:
        """Hear of files that changed on disk: those that are gone are offered no more, whatever else is to do."""
        known = [path for path in paths if path in self.states]
        self._note(known, [path for path in known if not os.path.lexists(path) and not self.is_open(path)])

    def _note(self, changed: Sequence[str], gone: Sequence[str]) -> None:
        self.changed.update(changed, gone)
        self.ledger.hide(gone)
        if gone:
            self.on_change()

    def sync_changed(self, path: str) -> Iterator[None]:
        """Count a file that changed on disk, if it is one of the domain's, and pause."""
        self.inclusion.pop(path, None)
        if self.includes(path):
            yield from self.sync_file(path)
        yield

    def sync_file(self, path: str) -> Iterator[None]:
        """Count what a file says now, with pauses while a long one is read; an open one is left to its buffer."""
        if self.is_open(path):
            return
        state = _state_of(path)
        try:
            document = yield from self.document(path)
        except FileNotFoundError:
            state = document = None
        except OSError:
            return
        if not self.is_open(path):
            self._apply(path, state, document)

    def document(self, path: str) -> Generator[None, None, CountedText | None]:
        """A file's text as ids; None if it is no source."""
        try:
            data = read_file(path)
        except NotSource:
            return None
        text, fault = decode_source(data, path)
        if fault is not None:
            return None
        key = text_digest(text.encode())
        known = self.ledger.streams(key)
        if known is None:
            encoded = yield from self.tokenizer.encode_in_steps(text)
            known = (stream(encoded.ids, self.end_of_text),)
        return CountedText(key, known)

    def _apply(self, path: str, state: State | None, document: CountedText | None) -> None:
        """Count a file as it is now, if the overlay has room for it."""
        before = self.ledger.keys.get(path)
        if self.ledger.put(path, document, share=_MAX_DISK_SHARE):
            self.states.pop(path, None)
            self.refused.pop(path, None)
            if state is not None:
                (self.refused if document is None else self.states)[path] = state
        if self.ledger.keys.get(path) != before:
            self.on_change()

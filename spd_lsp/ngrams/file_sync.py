"""Keeps one n-gram table up to date with its files: what changed on disk since the build is counted too.

In: the contents of a table, file by file, and the disk. Out: a ledger whose overlay holds the
difference. Nothing is written: after a restart the files are scanned again. Knows nothing of editors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Generator, Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from ngram_builders.arrays import Ints
from ngram_builders.counting.token_cache import IndexedFiles
from ngram_builders.counting.tokenize import text_digest
from ngram_builders.errors import UserError
from ngram_builders.ngrams import with_boundaries
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.discovery import SourceFile, skip_reason, walk_sources
from ngram_builders.sources.filters import EMPTY, UNREADABLE, NotSource, decode_source, read_file
from ngram_builders.sources.git_repository import checkout_state, is_git_at_work
from ngram_builders.sources.rules.selection import Selection
from ngram_builders.table.overlay import CountedText, Ledger, Overlay
from spd_lsp.ngrams.gone_names import GoneNames
from spd_lsp.ngrams.incremental_tokenizer import EncodedText, IncrementalTokenizer

NAME = re.compile(r"[^\W\d]\w{2,}")
State = tuple[int, int]  # a file's size and its time of change in nanoseconds

_MAX_DISK_SHARE = 0.5  # of an overlay's capacity for files changed on disk; the rest is for open ones
_MAX_NEAR_SHARE = 0.75  # with those that open documents import: others may have filled theirs before git was done
_FILES_PER_STEP = 64  # files checked between two pauses of a scan
MAX_DRIFT = 100_000  # n-grams in the overlay from which a rebuild is due; below, it costs next to nothing
_MAX_CHANGED_FILES = 50  # or files
_MAX_UNNAMED = 8  # outdated files that are counted anew before their names could be found


def real_path(file: Path) -> str:
    """Return a file's path without links, by which tables know it."""
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


class TableSync:
    """A table and the current state of its files."""

    def __init__(
        self,
        table: NgramTable,
        contents: IndexedFiles,
        tokenizer: IncrementalTokenizer,
        *,
        is_open: Callable[[str], bool],
        imported: Callable[[Container[str]], Iterable[str]] = lambda files: (),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`imported`: those of some files that open documents import."""
        self.table = table
        self.contents = contents
        self.tokenizer = tokenizer
        self.end_of_text = tokenizer.tokenizer.end_of_text
        self.is_open = is_open
        self.imported = imported
        self.on_change = on_change  # called when other texts are counted than before
        files = contents.files
        self.states: dict[str, State] = {path: (size, time) for path, (size, time, _) in files.items()}
        self.built_from: dict[Hashable, Hashable] = {path: digest for path, (_, _, digest) in files.items()}
        overlay = Overlay(vocab_size=tokenizer.tokenizer.vocab_size, orders=table.orders)
        self.ledger = Ledger(overlay, self.built_from, self.read)
        self.refused: dict[str, State] = {}  # files that are no source, as they were when last looked at
        self.inclusion: dict[str, bool] = {}
        self.changed: set[str] = set()  # files that changed, appeared or went since the table was built
        self.unread: set[str] = set()  # those of them that are counted as they were, and are not known to be gone
        self.gone_names = GoneNames()
        self.checkout = self._checkout()
        self.selection = Selection.of(table.recipe)

    def read(self, key: Hashable) -> tuple[Ints, ...] | None:
        """Return the token streams of a text that the table contains."""
        ids = self.contents.ids(key) if isinstance(key, bytes) else None
        return None if ids is None else (with_boundaries(ids, self.end_of_text),)

    @property
    def is_outdated(self) -> bool:
        """Whether the table should be rebuilt."""
        overlay = self.ledger.overlay
        has_drifted = overlay.full or overlay.size > MAX_DRIFT
        return self.contents.is_old or has_drifted or len(self.changed - self.unread) > _MAX_CHANGED_FILES

    @property
    def hidden(self) -> set[str]:
        """Deleted files that the table still counts."""
        return {path for path in self.ledger.hidden if isinstance(path, str)}

    @property
    def is_checked_out_anew(self) -> bool:
        """Whether git has changed files since the last scan, most likely."""
        return self._checkout() != self.checkout

    @property
    def is_being_changed(self) -> bool:
        """Whether git is changing files."""
        return "package" not in self.table.recipe and any(map(is_git_at_work, self.table.roots))

    def _checkout(self) -> list[object]:
        return [] if "package" in self.table.recipe else [checkout_state(root) for root in self.table.roots]

    def includes(self, path: str) -> bool:
        """Whether a build of the table would count this file; asked of the disk once."""
        if path in self.states:
            return True
        if path not in self.inclusion:
            self.inclusion[path] = self._would_include(Path(path))
        return self.inclusion[path]

    def _would_include(self, path: Path) -> bool:
        """Whether a file that the table does not contain is one of its sources, or will be once it has text."""
        try:
            return any(
                skip_reason(path, root, self.selection) in (None, EMPTY)
                for root in self.table.roots
                if path.is_relative_to(root)
            )
        except (UserError, OSError):  # it is not there yet
            return False

    def list_changes(self) -> Iterator[None]:
        """Find out which files changed on disk, in small steps with a pause between them; `learn` counts them."""
        self.inclusion.clear()
        self.checkout = self._checkout()
        missing = dict.fromkeys(self.states)
        unreadable = []
        changed = dict.fromkeys(self.hidden)
        for root in self.table.roots:
            for number, (path, verdict) in enumerate(walk_sources(str(root), self.selection)):
                if number % _FILES_PER_STEP == 0:
                    yield
                if isinstance(verdict, SourceFile):
                    missing.pop(path, None)
                    if self.states.get(path, self.refused.get(path)) != (verdict.size, verdict.mtime_ns):
                        changed[path] = None
                elif verdict.reason == UNREADABLE:
                    unreadable.append(path)
        gone = [path for path in missing if not path.startswith(tuple(unreadable)) and not self.is_open(path)]
        self.unread.clear()
        self._note(list(changed), gone)

    def learn(self) -> Iterator[None]:
        """Count the files that changed, in small steps; once the overlay is full, only what is imported.

        First what is imported where someone works, and so many others that it is known whether a rebuild is due.
        """
        near = [path for path in self.imported(self.states.keys() | self.unread) if path in self.unread]
        others = sorted(self.unread.difference(near))
        for path in near:
            yield from self.sync_file(path, _MAX_NEAR_SHARE)
            yield
        yield from self._sync_files(others[: _MAX_CHANGED_FILES + 1])
        yield from self.find_gone_names()
        yield from self._sync_files(others[_MAX_CHANGED_FILES + 1 :])
        for path in sorted(self.hidden):  # last: a deleted file is all of it to be subtracted
            self._apply(path, None, None)
            yield

    def _sync_files(self, paths: Sequence[str]) -> Iterator[None]:
        for path in paths:
            if self.ledger.overlay.full:
                return
            yield from self.sync_file(path)
            yield

    def note_changed(self, paths: Sequence[str]) -> None:
        """Hear of files that changed on disk: what only they have is offered no more, whatever else is to do."""
        known = [path for path in paths if path in self.states and not self.is_open(path)]
        self._note(known, [path for path in known if not os.path.lexists(path)])

    def _note(self, changed: Sequence[str], gone: Sequence[str]) -> None:
        before = self.unread | self.hidden
        self.changed.update(changed, gone)
        self.unread.update(changed)
        self.unread.difference_update(gone)
        self.ledger.reveal(changed)
        self.ledger.hide(gone)
        if len(self._outdated) > _MAX_UNNAMED and self.tokenizer.is_lossless:
            self.gone_names.suspect()
        if self.unread | self.hidden != before:
            self.on_change()

    @property
    def _outdated(self) -> set[str]:
        """Files whose text is counted as it was."""
        return {path for path in self.unread | self.hidden if path in self.ledger.keys}

    def find_gone_names(self) -> Iterator[None]:
        """Learn which names only outdated texts have, in steps, where it takes long to subtract these."""
        outdated = self._outdated
        if len(outdated) <= _MAX_UNNAMED or not self.tokenizer.is_lossless:
            self.gone_names.forget()
            return
        known = (self.states.keys() | self.changed) - self.hidden
        now = dict.fromkeys([*self.imported(known), *sorted(known)])
        yield from self.gone_names.find(map(_bytes_of, now), map(self._counted_bytes, outdated))
        self.on_change()

    def _counted_bytes(self, path: str) -> bytes:
        counted = self._counted(path)
        return counted.data if counted else b""

    def sync_changed(self, path: str) -> Iterator[None]:
        """Count a file that changed on disk, if it is one of the table's, and pause."""
        self.inclusion.pop(path, None)
        if self.includes(path):
            self.changed.add(path)
            yield from self.sync_file(path)
        yield

    def sync_file(self, path: str, share: float = _MAX_DISK_SHARE) -> Iterator[None]:
        """Count what a file says now, with pauses while a long one is read; an open one is left to its buffer."""
        if self.is_open(path):
            self.unread.discard(path)
            return
        state = _state_of(path)
        try:
            document = yield from self.document(path)
        except FileNotFoundError:
            state = document = None
        except OSError:
            return
        if not self.is_open(path):
            self._apply(path, state, document, share)

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
            encoded = yield from self.tokenizer.update_in_steps(self._counted(path), text)
            known = (with_boundaries(encoded.ids, self.end_of_text),)
        return CountedText(key, known)

    def _counted(self, path: str) -> EncodedText | None:
        """What is counted of a file; None if that is nothing, or not known."""
        streams = self.ledger.streams_of(path)
        return self.tokenizer.from_ids(streams[0][1:-1]) if streams else None

    def _apply(
        self, path: str, state: State | None, document: CountedText | None, share: float = _MAX_DISK_SHARE
    ) -> None:
        """Count a file as it is now, if this share of the overlay has room for it."""
        before = self.ledger.keys.get(path)
        if self.ledger.put(path, document, share=share):
            self.states.pop(path, None)
            self.refused.pop(path, None)
            if state is not None:
                (self.refused if document is None else self.states)[path] = state
            self._note_read(path)
        if self.ledger.keys.get(path) != before:
            self.on_change()

    def _note_read(self, path: str) -> None:
        """A file is counted as it is now; one that was only touched has not changed."""
        self.unread.discard(path)
        if self.ledger.keys.get(path) == self.built_from.get(path):
            self.changed.discard(path)
        if self.gone_names and not self._outdated:
            self.gone_names.forget()


def _bytes_of(path: str) -> bytes:
    """What is in a file; nothing if it cannot be read, or is no source."""
    try:
        return read_file(path)
    except (NotSource, OSError):
        return b""

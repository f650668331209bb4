"""N-grams of what is being written: open buffers and files changed since a table was built.

In: open documents and the cursor. Out: columns of signed counts, one set for each table that is kept in sync and
one for open files of no table. Knows neither LSP nor models.

The cursor's line is not counted, or text right of the cursor would predict itself. So typing within a line costs
nothing, and leaving it counts it. Everything runs in one thread; what takes long is done in `run_idle_work`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

import numpy as np

from ngram_builders.counting.token_cache import IndexedFiles
from ngram_builders.counting.tokenize import text_digest
from ngram_builders.ngrams import with_boundaries
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.table.format import Columns
from ngram_builders.table.overlay import CountedText, Ledger, Overlay
from spd_lsp.ngrams.file_sync import TableSync, real_path
from spd_lsp.ngrams.followed_tables import FollowedTables, Read, Steps
from spd_lsp.ngrams.incremental_tokenizer import EncodedText, IncrementalTokenizer
from spd_lsp.ngrams.open_documents import (
    DocumentChange,
    OpenDocument,
    OpenNames,
    clean,
    countable,
    imported_files,
    place_of,
)

LineSpan = tuple[int, int]  # start and end of the line that is not counted, in characters

_MAX_IMMEDIATE = 20_000  # new characters encoded before a completion; about 20 ms
_MAX_FILES_IMMEDIATE = 8  # changed on disk and counted before a completion
_MAX_FILES_APART = 100  # changed on disk and looked at one by one; more take longer than a scan
_MAX_IMPORTING = 8  # open documents whose imports come first


@dataclass(slots=True)
class Buffer:
    """An open document, and its counted text."""

    opened: OpenDocument
    place: str  # the real path of its file, else its name
    excluded: LineSpan | None
    encoded: EncodedText | None = None
    document: CountedText | None = None  # None if nothing is to be counted


class LiveIndex:
    """Counts of open buffers and changed files, relative to the tables."""

    def __init__(self, tokenizer: IncrementalTokenizer) -> None:
        self.tokenizer = tokenizer
        self.end_of_text = tokenizer.tokenizer.end_of_text
        self.vocab_size = tokenizer.tokenizer.vocab_size
        self.buffers: dict[str, Buffer] = {}
        self.names = OpenNames()
        self.active = ""  # the document with the cursor
        self.unassigned: dict[frozenset[str], Ledger] = {}  # by group of languages: open files of no table
        self.serial = itertools.count()
        self.revision = 0  # changes with what is counted, but for edits of open documents
        self.deferred: dict[str, None] = {}  # documents to be encoded between requests
        self.queue: deque[Steps] = deque()
        self.tables = FollowedTables(self.queue)
        self.synced = self.tables.synced
        self.ended = False

    # Updates from the editor.

    def update_documents(self, changes: Mapping[str, DocumentChange], active: str = "") -> None:
        """Apply changes of documents, except the text of the active one: `set_active` applies that."""
        for name, change in changes.items():
            if change.document is None:
                self.close(name)
                continue
            if change.saved:
                self.on_saved(name)
            if name != active:
                self.show(change.document.plain, None)

    def set_active(self, opened: OpenDocument, cursor: int) -> None:
        """Update the document that a completion is requested for; its line with the cursor is not counted.

        Its lines end in "\\n", as tokens know them: `context.plain` makes them so and moves the cursor with them.
        """
        last = self.active
        self.active = opened.name
        if last != opened.name and last in self.buffers:
            self.show(self.buffers[last].opened, None)
            self.assign_again(last)
            self.assign_again(opened.name)
        self.show(opened, line_around(opened.text, cursor))

    def update_files(self, files: Iterable[Path]) -> None:
        """Count files that changed on disk: a few now, the rest between requests, at last those that are gone."""
        paths = sorted(map(real_path, files), key=os.path.lexists, reverse=True)
        synced = list(self.synced.values())
        for sync in synced:
            sync.note_changed(paths)
        if len(paths) > _MAX_FILES_APART:
            self.tables.scan_soon()
            return
        self.queue.extend(sync.find_gone_names() for sync in synced)
        steps = (step for path in paths for sync in synced for step in sync.sync_changed(path))
        deque(islice(steps, _MAX_FILES_IMMEDIATE), maxlen=0)
        self.queue.append(steps)

    # Queries.

    def open_files(self, language: str | None) -> tuple[Columns, ...]:
        """Return the counts of open files in this language that belong to no table."""
        return next((ledger.overlay.columns for group, ledger in self.unassigned.items() if language in group), ())

    @property
    def gone_check(self) -> Callable[[str], bool] | None:
        """What tells whether a name is gone; None while none is."""
        return self.is_gone if any(sync.gone_names for sync in self.synced.values()) else None

    def is_gone(self, name: str) -> bool:
        """Whether only outdated texts have a name, and no open document."""
        return any(sync.gone_names.has(name) for sync in self.synced.values()) and not self.names.has(name)

    def columns(self, table: NgramTable, read: Read) -> tuple[Columns, ...]:
        """Return the counts of what changed since a table was built; `read` returns the table's contents."""
        return self.tables.columns(table, read, self._follow)

    def retain(self, tables: Iterable[str]) -> None:
        """Drop all other tables."""
        if self.tables.retain(tables):
            self._on_other_tables()

    def begin_anew(self, name: str) -> None:
        """Compare a table with its files as if it had just been opened: a build may have found it up to date."""
        self.tables.forget(name)
        self._on_other_tables()

    @property
    def latest(self) -> tuple[Path | None, str | None] | None:
        """The file and language of the document that was opened last."""
        return next(((one.opened.path, one.opened.language) for one in reversed(self.buffers.values())), None)

    def _follow(self, table: NgramTable, contents: IndexedFiles) -> None:
        """Keep a table in sync with its files, but for those that are open."""
        sync = TableSync(
            table,
            contents,
            self.tokenizer,
            is_open=lambda place: any(buffer.place == place for buffer in self.buffers.values()),
            imported=lambda files: self._imported(table, files),
            on_change=self.on_change,
        )
        self.tables.add(sync)
        self._on_other_tables()

    def _imported(self, table: NgramTable, files: Container[str]) -> list[str]:
        """Those of some files of a table that the documents opened last import."""
        latest = [self.buffers[self.active]] if self.active in self.buffers else []
        latest += islice(reversed(self.buffers.values()), _MAX_IMPORTING)
        found = (path for one in latest for path in imported_files(one.opened, one.place, table.roots, files))
        return list(dict.fromkeys(found))

    def _on_other_tables(self) -> None:
        """Other tables are followed than before: open documents may belong to them."""
        self.on_change()
        for name in self.buffers:
            self.assign_again(name)

    def on_change(self) -> None:
        """Other n-grams are counted than before, though no open document was edited."""
        self.revision += 1

    # Buffers.

    def show(self, opened: OpenDocument, excluded: LineSpan | None) -> None:
        """Count the text of a document."""
        buffer = self.buffers.get(opened.name)
        if buffer is not None and buffer.opened.language != opened.language:
            self.close(opened.name)
            buffer = None
        if buffer is not None and _differs_only_in_excluded(buffer, opened, excluded):
            buffer.opened = opened
            buffer.excluded = excluded
            return
        if buffer is None:
            buffer = self.buffers[opened.name] = Buffer(opened, place_of(opened), excluded)
            buffer.encoded = self.from_table(buffer)
        buffer.opened = opened
        buffer.excluded = excluded
        known = len(buffer.encoded.data) if buffer.encoded else 0
        # A document without the cursor can wait, unless little of it is new.
        if opened.name in self.deferred or len(opened.text) - known > (_MAX_IMMEDIATE if excluded or known else 0):
            self.deferred[opened.name] = None
        else:
            self.read(buffer)

    def from_table(self, buffer: Buffer) -> EncodedText | None:
        """A file's text as a table contains it, so that only what differs has to be read."""
        for sync in self.synced.values():
            streams = sync.ledger.streams_of(buffer.place)
            if streams:
                return self.tokenizer.from_ids(streams[0][1:-1])
        return None

    def read(self, buffer: Buffer) -> None:
        """Encode a buffer where it changed, and count it."""
        cleaned = clean(buffer.opened.text)
        text = countable(buffer.opened, cleaned)
        if text is None:
            buffer.encoded = buffer.document = None
            self.names.drop(buffer.opened.name)
        else:
            self.names.put(buffer.opened.name, buffer.opened.language, text)
            excluded = buffer.excluded and _moved(buffer.excluded, cleaned, text)
            encoded = self.tokenizer.update(buffer.encoded, text)
            if encoded is None:
                self.deferred[buffer.opened.name] = None
                return
            buffer.encoded = encoded
            buffer.document = self.document(buffer.encoded, text, excluded)
        self.assign(buffer)

    def document(self, encoded: EncodedText, text: str, excluded: LineSpan | None) -> CountedText:
        """Return the counted text: all of it, or the parts before and after the excluded line."""
        if excluded is None:
            return CountedText(text_digest(encoded.data), (with_boundaries(encoded.ids, self.end_of_text),))
        start, end = excluded
        if encoded.ends is None:
            before = self.tokenizer.encode(text[:start]).ids
            after = self.tokenizer.encode(text[end:]).ids
        else:
            before, after = encoded.around(len(text[:start].encode()), len(text[:end].encode()))
        mark = [self.end_of_text]
        streams = np.concatenate((mark, before)), np.concatenate((after, mark))
        return CountedText(next(self.serial), streams, text.count("\n"))

    def assign(self, buffer: Buffer) -> None:
        """Assign a buffer's counted text to the tables that include its file, or to the open files."""
        owners = [one.ledger for one in self.synced.values() if buffer.opened.path and one.includes(buffer.place)]
        # The repository's counts would drown those of the file that is being written.
        is_apart = not owners or buffer.opened.name == self.active
        for ledger in owners:
            ledger.put(buffer.place, None if is_apart else buffer.document)
        self.put_unassigned(buffer.opened, buffer.place, buffer.document if is_apart else None)

    def put_unassigned(self, opened: OpenDocument, place: str, document: CountedText | None) -> None:
        """Add a document to the open files of its language, or remove it."""
        language = opened.language or language_of(PurePath(opened.name))
        if language is not None:
            language_group = related_languages(language)
            if document is not None:
                self.unassigned.setdefault(language_group, Ledger(Overlay(vocab_size=self.vocab_size)))
            if language_group in self.unassigned:
                self.unassigned[language_group].put(place, document)

    def assign_again(self, name: str) -> None:
        """Assign a document's buffer to its tables again, if it was read."""
        if name in self.buffers and name not in self.deferred:
            self.assign(self.buffers[name])

    def on_saved(self, name: str) -> None:
        """A document was saved: its file may now belong to a table."""
        if (buffer := self.buffers.get(name)) is not None:
            for sync in self.synced.values():
                sync.inclusion.pop(buffer.place, None)
            self.assign_again(name)

    def close(self, name: str) -> None:
        """Stop counting a document's unsaved text."""
        self.deferred.pop(name, None)
        if (buffer := self.buffers.get(name)) is None:
            return
        self.show(buffer.opened, None)  # saved text need not be encoded again
        del self.buffers[name]
        self.names.drop(name)
        self.put_unassigned(buffer.opened, buffer.place, None)
        for sync in self.synced.values():
            if sync.includes(buffer.place):
                steps = sync.sync_file(buffer.place)
                next(steps, None)  # finishes unless the file is long
                self.queue.append(steps)

    # Work between requests.

    def run_idle_work(self, seconds: float) -> bool:
        """Run background work for about this long. Return whether there is more."""
        end = time.monotonic() + seconds
        while steps := self.next_work():
            for _ in steps:
                if time.monotonic() >= end:
                    return True
            if self.queue:  # else another thread has ended the work
                self.queue.popleft()
        return False

    def end(self) -> None:
        """Begin no more background work, and let go of what was begun: it would keep this object alive."""
        self.ended = True
        self.queue.clear()

    def next_work(self) -> Steps | None:
        """Return the head of the queue: work begun, then deferred documents, then scans of the disk."""
        if self.ended:
            return None
        if not self.queue:
            self.queue.extend(self.read_deferred(name) for name in self.deferred)
        if not self.queue:
            self.queue.extend(self.tables.due_scans())
        return self.queue[0] if self.queue else None

    def read_deferred(self, name: str) -> Steps:
        """Encode a long document in steps; changes made meanwhile are encoded at the end."""
        buffer = self.buffers.get(name)
        if buffer is not None and (text := countable(buffer.opened, clean(buffer.opened.text))) is not None:
            buffer.encoded = yield from self.tokenizer.encode_in_steps(text)
        self.deferred.pop(name, None)
        if (buffer := self.buffers.get(name)) is not None:
            self.read(buffer)
            self.names.read(but=self.active)
            self.on_change()


def line_around(text: str, cursor: int) -> LineSpan:
    """Return the bounds of the cursor's line with its newline. Example: ("a\\nbc\\nd", 3) -> (2, 5)."""
    end = text.find("\n", cursor)
    return text.rfind("\n", 0, cursor) + 1, end + 1 if end >= 0 else len(text)


def _moved(excluded: LineSpan, text: str, masked: str) -> LineSpan:
    """Return the span of the excluded line after other lines were masked: its line number is the same."""
    if masked == text:
        return excluded
    before = masked.split("\n")[: text.count("\n", 0, excluded[0])]
    return line_around(masked, sum(map(len, before)) + len(before))


def _differs_only_in_excluded(buffer: Buffer, opened: OpenDocument, excluded: LineSpan | None) -> bool:
    """Whether a document differs from its last version in the excluded line at most."""
    old = buffer.opened.text
    new = opened.text
    if excluded is None or buffer.excluded is None:
        return excluded is None and buffer.excluded is None and old == new
    start, end = buffer.excluded
    new_start, new_end = excluded
    return start == new_start and old[:start] == new[:start] and old[end:] == new[new_end:]

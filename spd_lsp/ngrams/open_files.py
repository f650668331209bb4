"""What is open in an editor, counted as it is now: beside a table of its file, or apart.

In: open documents, the cursor, files that changed. Out: suffix arrays, texts to copy from, names. Knows neither
LSP nor models.

The cursor's line is not counted, or text right of the cursor would predict itself. So typing within a line costs
nothing, and leaving it counts it. Everything runs in one thread; what takes long is done in `run_idle_work`.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import numpy as np

from ngram_builders.index.occurrences import SearchedTexts
from ngram_builders.index.query import Signed
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.token_cache import read_indexed_files
from ngram_builders.token_space import with_boundaries
from ngram_builders.tokenized_files import text_digest
from spd_lsp.ngrams.counted_texts import CountedText, SortedTexts
from spd_lsp.ngrams.open_documents import (
    DocumentChange,
    OpenDocument,
    clean,
    countable,
    names_from,
    place_of,
    real_path,
    sorted_names,
)
from spd_lsp.ngrams.table_files import MAX_CHANGED_FILES, Steps, TableFiles
from spd_lsp.ngrams.text_encoder import TextEncoder, Tokenizer

LineSpan = tuple[int, int]  # start and end of the line that is not counted, in characters

_MAX_IMMEDIATE = 20_000  # new characters encoded before a completion; about 20 ms


@dataclass(slots=True)
class _Buffer:
    """An open document, and what is counted of it."""

    opened: OpenDocument
    place: str  # the real path of its file, else its name
    group: frozenset[str] = frozenset()  # the languages that it counts for
    excluded: LineSpan | None = None
    known: dict[str, list[int]] = field(default_factory=dict)  # the ids of its pieces
    counted: CountedText | None = None  # None if nothing is to be counted
    text: str = ""  # with secrets masked; of the document with the cursor as it was before it had that
    names: Sequence[str] = ()  # in `text`, in order
    is_apart: bool = True  # whether it is counted beside all tables


class OpenFiles:
    """The open documents, and the files of the tables that serve them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encoder = TextEncoder(tokenizer)
        self.tables: dict[str, TableFiles] = {}  # by name
        self.revision = 0  # changes with what is counted, but for edits of open documents
        self._buffers: dict[str, _Buffer] = {}  # by the document's name
        self._active = ""  # the document with the cursor
        self._apart: dict[str | None, tuple[SortedTexts, SortedTexts]] = {}  # by language: others, active
        self._serial = itertools.count()
        self._deferred: dict[str, None] = {}  # documents to be encoded between requests
        self._work: deque[Steps] = deque()

    # Updates from the editor.

    def update_documents(self, changes: Mapping[str, DocumentChange], active: str = "") -> None:
        """Apply changes of documents, except the text of the active one: `set_active` applies that."""
        for name, change in changes.items():
            if change.document is None:
                self._close(name)
                continue
            if change.saved and change.document.path:
                self.update_files([change.document.path])
            if name != active:
                self._show(change.document.plain, None)

    def set_active(self, opened: OpenDocument, cursor: int) -> None:
        """Update the document that a completion is requested for; its line with the cursor is not counted.

        Its lines end in "\\n", as tokens know them.
        """
        last, self._active = self._active, opened.name
        if last != opened.name:
            if last in self._buffers:
                self._show(self._buffers[last].opened, None)
            if opened.name in self._buffers:
                self._assign(self._buffers[opened.name])
        self._show(opened, line_around(opened.text, cursor))

    def update_files(self, files: Collection[Path]) -> None:
        """Read files that changed on disk, between requests; where they are many, look at all files."""
        for table in self.tables.values():
            if len(files) > MAX_CHANGED_FILES:
                table.scan_soon()
            else:
                self._work.append(table.read_reported([real_path(file) for file in files]))

    # Queries.

    def arrays(self, language: str | None) -> tuple[Signed, ...]:
        """The open files in this language that are counted beside all tables."""
        return tuple(signed for texts in self._of(language) for signed in texts.signed())

    def searched_texts(self, language: str | None) -> list[SearchedTexts]:
        """The same as texts to copy from."""
        return [found for texts in self._of(language) for found in texts.searched(_file_name)]

    def names(self, start: str, language: str | None, without: str) -> Iterator[str]:
        """Yield the names that begin so in the documents of a language, one document left out."""
        for name, buffer in self._buffers.items():
            if name != without and buffer.opened.language == language:
                yield from names_from(buffer.names, start)

    def text_at(self, place: str) -> str:
        """What may be counted of a document that is open at a place; nothing if none is."""
        return next((buffer.text for buffer in self._buffers.values() if buffer.place == place), "")

    @property
    def latest(self) -> tuple[Path | None, str | None] | None:
        """The file and language of the document that was opened last."""
        return next(((one.opened.path, one.opened.language) for one in reversed(self._buffers.values())), None)

    # Tables.

    def follow(self, table: NgramTable, fingerprint: str) -> TableFiles | None:
        """Return a table's files, kept up to date from now on; None if what it was built from is not known."""
        known = self.tables.get(table.name)
        if known is None or known.table != table:
            contents = read_indexed_files(table.paths, fingerprint)
            if contents is None:
                return None
            known = self.tables[table.name] = TableFiles(table, contents, self.encoder, self._on_change)
            self._on_change()
        return known

    def retain(self, tables: Iterable[NgramTable]) -> None:
        """Drop all other tables, and those that were rebuilt since."""
        named = {table.name: table for table in tables}
        for name in [name for name, files in self.tables.items() if files.table != named.get(name)]:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Drop a table; it is compared with its files anew when it is followed again."""
        if self.tables.pop(name, None):
            self._on_change()

    def _on_change(self) -> None:
        """Other files are counted than before, though no open document was edited."""
        self.revision += 1
        for buffer in self._buffers.values():
            self._assign(buffer)

    # Documents.

    def _show(self, opened: OpenDocument, excluded: LineSpan | None) -> None:
        """Count the text of a document."""
        buffer = self._buffers.get(opened.name)
        is_counted = buffer is not None and _differs_only_in_excluded(buffer, opened, excluded)
        if buffer is None:
            buffer = self._buffers[opened.name] = _Buffer(opened, place_of(opened))
        language = opened.language or language_of(PurePath(opened.name))
        buffer.group = related_languages(language) if language else frozenset()
        buffer.opened = opened
        buffer.excluded = excluded
        if is_counted:
            return
        # A document without the cursor can wait, unless little of it is new.
        most = _MAX_IMMEDIATE if excluded or buffer.known else 0
        if opened.name in self._deferred or (not buffer.known and len(opened.text) > most):
            self._deferred[opened.name] = None
        else:
            self._read(buffer, most)

    def _read(self, buffer: _Buffer, most: int) -> None:
        """Encode a buffer where it changed, and count it; later if more characters than that are new."""
        cleaned = clean(buffer.opened.text)
        text = countable(buffer.opened, cleaned)
        if text is None:
            buffer.known, buffer.counted, buffer.text, buffer.names = {}, None, "", ()
        else:
            new = {piece for piece in self.encoder.pieces(text) if piece not in buffer.known}
            if sum(map(len, new)) > most:
                self._deferred[buffer.opened.name] = None
                return
            if buffer.excluded is None:
                buffer.text, buffer.names = text, sorted_names(text)
            self._count(buffer, cleaned, text)
        self._assign(buffer)

    def _count(self, buffer: _Buffer, cleaned: str, text: str) -> None:
        """Note the ids of a text: of all of it, or of the parts before and after the excluded line."""
        encoded = self.encoder.encode(text, buffer.known)
        buffer.known = encoded.known
        end_of_text = self.encoder.tokenizer.end_of_text
        if buffer.excluded is None:
            whole = with_boundaries(encoded.ids, end_of_text)
            buffer.counted = CountedText(buffer.place, text_digest(text.encode()), (whole,))
            return
        before, after = self.encoder.around(encoded, *_moved(buffer.excluded, cleaned, text))
        streams = np.concatenate(([end_of_text], before)), np.concatenate((after, [end_of_text]))
        buffer.counted = CountedText(buffer.place, next(self._serial), streams, text.count("\n"))

    def _assign(self, buffer: _Buffer) -> None:
        """Count a buffer with the tables that include its file, or beside them."""
        if buffer.opened.name in self._deferred:
            return  # until it is read, its file counts as it is on disk
        owners = [table for table in self.tables.values() if buffer.place in table.states]
        # The repository's counts would drown those of the file that is being written.
        buffer.is_apart = not owners or buffer.opened.name == self._active
        for table in self.tables.values():
            if table in owners:
                table.put(buffer.place, None if buffer.is_apart else buffer.counted)
            else:
                table.close(buffer.place)

    def _close(self, name: str) -> None:
        """Stop counting a document's text; its file counts as it is on disk."""
        self._deferred.pop(name, None)
        if (buffer := self._buffers.pop(name, None)) is not None:
            for table in self.tables.values():
                table.close(buffer.place)

    def _of(self, language: str | None) -> Sequence[SortedTexts]:
        """The texts in a language that are counted beside all tables: other documents', and the active one's."""
        apart = {
            name: buffer.counted
            for name, buffer in self._buffers.items()
            if buffer.is_apart and buffer.counted and language in buffer.group
        }
        active = apart.pop(self._active, None)
        pair = self._apart.setdefault(language, (SortedTexts(), SortedTexts()))
        pair[0].update(list(apart.values()))
        pair[1].update([active] if active else [])
        return pair

    # Work between requests.

    def run_idle_work(self, seconds: float) -> bool:
        """Encode deferred documents, read and scan files for about this long. Return whether there is more."""
        end = time.monotonic() + seconds
        while self.has_work():
            for _ in self._work[0]:
                if time.monotonic() >= end:
                    return True
            self._work.popleft()
            if time.monotonic() >= end:
                return self.has_work()
        return False

    def has_work(self) -> bool:
        """Whether there is background work: begun, or of deferred documents, or a scan that is due."""
        if not self._work:
            self._work.extend(map(self._read_deferred, self._deferred))
        if not self._work:
            self._work.extend(table.scan() for table in self.tables.values() if table.is_scan_due)
        return bool(self._work)

    def _read_deferred(self, name: str) -> Steps:
        """Encode a long document in steps; changes made meanwhile are encoded at the end."""
        if (buffer := self._buffers.get(name)) is None:
            return  # it was closed
        for piece in dict.fromkeys(self.encoder.pieces(countable(buffer.opened, clean(buffer.opened.text)) or "")):
            if piece not in buffer.known:
                buffer.known[piece] = self.encoder.tokenizer.encode(piece)
                yield
        if self._buffers.get(name) is buffer:  # else it was closed meanwhile
            self._deferred.pop(name, None)
            self._read(buffer, _MAX_IMMEDIATE)
            self._on_change()


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


def _differs_only_in_excluded(buffer: _Buffer, opened: OpenDocument, excluded: LineSpan | None) -> bool:
    """Whether a document differs from its last version in the excluded line at most."""
    old = buffer.opened.text
    new = opened.text
    if excluded is None or buffer.excluded is None:
        return excluded is None and buffer.excluded is None and old == new
    start, end = buffer.excluded
    new_start, new_end = excluded
    return start == new_start and old[:start] == new[:start] and old[end:] == new[new_end:]


def _file_name(holder: object) -> str:
    """The name of an open document's file."""
    return PurePath(str(holder)).name

"""Counts open documents as they are now: with the table of their file, or apart.

In: open documents, the cursor, files that changed. Out: suffix arrays, texts to copy from, names. Knows neither
LSP nor models.

The cursor's line is not counted, or text right of the cursor would predict itself. So typing within a line costs
nothing, and leaving it counts it. Everything runs in one thread; files on disk are read in `run_idle_work`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import numpy as np

from ngram_builders.index.mixture import Signed
from ngram_builders.index.suffix_array import SearchedTexts
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.token_cache import read_indexed_files, text_digest
from ngram_builders.token_space import with_boundaries
from spd_lsp.ngrams.open_documents import OpenDocument, countable, names_from, place_of, real_path, sorted_names
from spd_lsp.ngrams.table_files import MAX_CHANGED_FILES, CountedText, SortedTexts, Steps, TableFiles
from spd_lsp.ngrams.text_encoder import TextEncoder, Tokenizer


@dataclass(slots=True)
class _Buffer:
    """An open document, and what is counted of it."""

    opened: OpenDocument
    place: str  # the real path of its file, else its name
    parts: tuple[str, ...] = ()  # all of it, or what is before and after the line of the cursor
    counted: CountedText | None = None  # None if nothing is to be counted
    text: str = ""  # with secrets masked; of the document with the cursor as it was before it had that
    names: Sequence[str] = ()  # in `text`, in order


class OpenFiles:
    """The open documents, and the files of the tables that serve them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encoder = TextEncoder(tokenizer)
        self.tables: dict[str, TableFiles] = {}  # by name
        self.revision = 0  # changes with what is counted, but for edits of open documents
        self._buffers: dict[str, _Buffer] = {}  # by the document's name
        self._active = ""  # the document with the cursor
        self._apart: dict[str | None, tuple[SortedTexts, SortedTexts]] = {}  # by language: others, active
        self._work: deque[Steps] = deque()

    # Updates from the editor.

    def update_documents(self, changes: Mapping[str, OpenDocument | None], active: str = "") -> None:
        """Apply changes of documents, None for a closed one. `set_active` changes the active one."""
        for name, document in changes.items():
            if document is None:
                self._buffers.pop(name, None)
            elif name != active:
                self._show(replace(document, text=normalize_line_ends(document.text)))

    def set_active(self, opened: OpenDocument, cursor: int) -> None:
        """Update the document that a completion is requested for; its line with the cursor is not counted.

        Its lines end in "\\n", as tokens know them.
        """
        last, self._active = self._active, opened.name
        if last != opened.name and last in self._buffers:
            self._show(self._buffers[last].opened)
        self._show(opened, cursor)

    def update_files(self, files: Collection[Path]) -> None:
        """Read files that changed on disk, between requests; where they are many, look at all files."""
        for table in self.tables.values():
            if len(files) > MAX_CHANGED_FILES:
                table.scan_soon()
            else:
                self._work.append(table.read([real_path(file) for file in files]))

    # Queries.

    def arrays(self, language: str | None) -> tuple[Signed, ...]:
        """The open files in this language that are counted beside all tables."""
        return tuple(signed for texts in self._of(language) for signed in texts.signed())

    def searched_texts(self, language: str | None) -> list[SearchedTexts]:
        """The texts of `arrays`, to copy from."""
        pair = self._of(language)
        return [one for texts in pair for one in texts.searched(lambda place: PurePath(str(place)).name)]

    def names(self, start: str, language: str | None, without: str) -> Iterator[str]:
        """Yield the names with this start in the documents of a language, but for one document."""
        for name, buffer in self._buffers.items():
            if name != without and buffer.opened.language == language:
                yield from names_from(buffer.names, start)

    def text_at(self, place: str) -> str:
        """The masked text of the document that is open at a place; "" without one."""
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
            known = self.tables[table.name] = TableFiles(table, contents, self.encoder, self._texts)
            self.revision += 1
        return known

    def retain(self, tables: Iterable[NgramTable]) -> None:
        """Drop all other tables, and those that were rebuilt since; they are compared with their files anew."""
        kept = {table.name: table for table in tables}
        self.tables = {name: one for name, one in self.tables.items() if one.table == kept.get(name)}
        self.revision += 1

    # Documents.

    def _show(self, opened: OpenDocument, cursor: int | None = None) -> None:
        """Count the text of a document, but for the line of the cursor."""
        text = opened.text
        parts: tuple[str, ...] = (text,)
        if cursor is not None:
            start, end = line_around(text, cursor)
            parts = text[:start], text[end:]
        buffer = self._buffers.setdefault(opened.name, _Buffer(opened, place_of(opened)))
        is_counted = buffer.parts == parts
        buffer.opened, buffer.parts = opened, parts
        if is_counted:
            return
        masked = countable(opened)
        if masked is None:
            buffer.counted, buffer.text, buffer.names = None, "", ()
            return
        end_of_text = self.encoder.tokenizer.end_of_text
        if len(parts) == 1:
            buffer.text, buffer.names = masked, sorted_names(masked)
            whole = with_boundaries(self.encoder.encode(masked), end_of_text)
            buffer.counted = CountedText(buffer.place, text_digest(masked.encode()), (whole,))
            return
        lines = masked.split("\n")  # masked or not, the line of the cursor has the same number
        first = sum(len(line) + 1 for line in lines[: parts[0].count("\n")])
        before, after = self.encoder.around(masked, *line_around(masked, first))
        streams = np.concatenate(([end_of_text], before)), np.concatenate((after, [end_of_text]))
        buffer.counted = CountedText(buffer.place, object(), streams, len(lines) - 1)

    def _texts(self) -> dict[str, CountedText | None]:
        """The texts of open documents by place, which replace those of their files in tables.

        The repository's counts would drown those of the file that is being written: it is counted apart.
        """
        return {one.place: None if name == self._active else one.counted for name, one in self._buffers.items()}

    def _of(self, language: str | None) -> Sequence[SortedTexts]:
        """The texts in a language that are counted beside all tables: other documents', and the active one's."""
        tables = self.tables.values()
        apart = {
            name: one.counted
            for name, one in self._buffers.items()
            if one.counted
            and language in related_languages(one.opened.language or language_of(PurePath(name)) or "")
            and (name == self._active or not any(one.place in table.states for table in tables))
        }
        active = apart.pop(self._active, None)
        pair = self._apart.setdefault(language, (SortedTexts(), SortedTexts()))
        pair[0].update(list(apart.values()))
        pair[1].update([active] if active else [])
        return pair

    # Work between requests.

    def run_idle_work(self, seconds: float) -> bool:
        """Read and scan files for about this long. Return whether there is more."""
        end = time.monotonic() + seconds
        while self.has_work():
            for is_changed in self._work[0]:
                self.revision += is_changed
                if time.monotonic() >= end:
                    return True
            self._work.popleft()
            if time.monotonic() >= end:
                return self.has_work()
        return False

    def has_work(self) -> bool:
        """Whether files are to be read, or a scan is due."""
        if not self._work:
            self._work.extend(table.scan() for table in self.tables.values() if table.is_scan_due)
        return bool(self._work)


def line_around(text: str, cursor: int) -> tuple[int, int]:
    """Return the bounds of the cursor's line with its newline. Example: ("a\\nbc\\nd", 3) -> (2, 5)."""
    end = text.find("\n", cursor)
    return text.rfind("\n", 0, cursor) + 1, end + 1 if end >= 0 else len(text)

"""What is counted for a file: the tables that serve it, kept up to date, and open documents. -> their mixture

In: a registry, open documents, the cursor, files that changed. Out: a `Mixture` for a file and its language, texts
to copy from, names. Knows neither LSP nor models.

The cursor's line is not counted, or text right of the cursor would predict itself. So typing within a line costs
nothing, and leaving it counts it. Everything runs in one thread; files on disk are read in `run_idle_work`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from ngram_builders.errors import UserError
from ngram_builders.index.mixture import DEFAULT_WEIGHT, Mixture, Pool, Signed
from ngram_builders.index.suffix_array import SearchedTexts
from ngram_builders.index.table_file import Table, TableError
from ngram_builders.registry.ngram_table import NgramTable, covering_tables, mismatch_message, trust
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.token_cache import read_indexed_files, text_digest
from ngram_builders.token_space import with_boundaries
from spd_lsp.ngrams.background_process import Rebuilder, outdated_message
from spd_lsp.ngrams.open_documents import OpenDocument, countable, names_from, place_of, real_path, sorted_names
from spd_lsp.ngrams.table_files import MAX_CHANGED_FILES, CountedText, SortedTexts, Steps, TableFiles
from spd_lsp.ngrams.text_encoder import TextEncoder, Tokenizer
from spd_lsp.settings import Settings

OPEN_FILES = "open files"  # the name under which their counts are listed beside the tables


def _label(table: NgramTable, file: Path | None, holder: object) -> str:
    """The path of a table's file, for people; with the table's name if the completed file lies elsewhere.

    Example: `httpx: _client.py`.
    """
    path = Path(str(holder))
    root = next((root for root in table.roots if path.is_relative_to(root)), path.parent)
    is_own = file is not None and Path(real_path(file)).is_relative_to(root)
    return path.relative_to(root).as_posix() if is_own else f"{table.name}: {path.relative_to(root).as_posix()}"


def adjusted(mixture: Mixture | None, settings: Settings) -> Mixture | None:
    """Return the mixture with the weight and the longest order of the settings."""
    return mixture and mixture.adjusted(settings.ngram_weight, settings.max_order)


class ServingTable(NamedTuple):
    """An open table that serves a file, in one file or in several whose counts add up."""

    table: NgramTable
    weight: float
    files: list[Table]
    sources: TableFiles | None  # what it was built from, if that is known and kept up to date


class ServingTables:
    """The tables that serve a file: what the registry names for it.

    A table is opened once, and the registry is asked at every request, and in `run_idle_work`, whether it names
    others than before: its `generation` says so. What cannot be used is left out; `problems` says why. With
    `open_files`, what was edited since a table was built counts as well; with `rebuilder`, a table that fell far
    behind its files is replaced.
    """

    def __init__(
        self,
        registry: Registry | None,
        fingerprint: str,
        open_files: OpenFiles | None = None,
        rebuilder: Rebuilder | None = None,
        model: str = "",
    ) -> None:
        self.registry = registry
        self.fingerprint = fingerprint
        self.open_files = open_files
        self.rebuilder = rebuilder
        self.model = model  # as problems name it
        self.problems: list[str] = []
        self.tables: list[ServingTable] = []  # for the file asked for last
        self._asked: tuple[Path | None, str | None] | None = None  # that file, and its language; None: look again
        self._generation: Hashable = None  # of the registry, when the tables were looked up
        self._opened: dict[Path, Table | None] = {}

    def serve(self, document: OpenDocument, cursor: int) -> Mixture | None:
        """Bring the counts up to date, and return the mixture for a document at the cursor.

        All of an open document is counted but for the line of the cursor, which would predict itself.
        """
        if self.open_files and document.name:
            self.open_files.set_active(document, cursor)
        return self.mixture_for(document.path, document.language)

    def mixture_for(self, file: Path | None, language: str | None) -> Mixture | None:
        """Return the mixture for a file, or None if no table and no open file is about such code."""
        self._reload_if_changed()
        if self._asked != (file, language):
            self.tables = self._tables_for(file, language)
            self._asked = file, language
        pools: list[Pool] = [
            (*(Signed(file.array) for file in one.files), *(one.sources.differences() if one.sources else ()))
            for one in self.tables
        ]
        names = [one.table.name for one in self.tables]
        weights = [one.weight for one in self.tables]
        texts: list[SearchedTexts] = []  # to copy from
        if self.open_files:
            for one in self.tables:
                if one.sources:
                    shards = [shard.array for shard in one.files]
                    label = partial(_label, one.table, file)
                    texts += one.sources.searched_texts(shards, label, trust(one.weight))
            texts += self.open_files.searched_texts(language)
            if opened := self.open_files.arrays(language):
                pools.append(opened)
                names.append(OPEN_FILES)
                weights.append(DEFAULT_WEIGHT)
        return Mixture(pools, weights, names, texts) if pools else None

    def know(self, language: str | None) -> bool:
        """Whether a table of the last request's file holds code in this language; open files do not count."""
        related = related_languages(language or "")
        held = (one.table.languages for one in self.tables)
        return any(not languages or not related.isdisjoint(languages) for languages in held)

    @property
    def revision(self) -> int:
        """Changes with the tables, and with the files that changed since; edits of open files do not count."""
        return self.open_files.revision if self.open_files else 0

    def run_idle_work(self, seconds: float) -> bool:
        """Count changes for about this long, look for other tables, start due rebuilds; whether there is more."""
        if self.open_files is None:
            return False
        if self.open_files.run_idle_work(seconds):
            return True
        if asked := self._asked or self.open_files.latest:
            self.mixture_for(*asked)  # so the next request finds its tables open
        outdated = [one.table for one in self.open_files.tables.values() if one.is_outdated]
        built = self.rebuilder.update(outdated) if self.rebuilder else []
        for problem in self.rebuilder.problems if self.rebuilder else map(outdated_message, outdated):
            self._report(problem)
        return bool(built) or self.open_files.has_work()

    def _reload_if_changed(self) -> None:
        """Look all tables up again if one was built, chosen or removed since."""
        generation = self.registry.generation() if self.registry else None
        if self.registry is None or generation == self._generation:
            return
        self._generation = generation
        self._asked = None
        tables = self.registry.tables()
        kept = {path for table in tables for path in table.paths}
        self._opened = {path: file for path, file in self._opened.items() if file and path in kept}
        self.problems = [fault for fault in (self.registry.fault(), *(one.fault for one in tables)) if fault]
        if self.open_files:
            self.open_files.retain(tables)

    def _tables_for(self, file: Path | None, language: str | None) -> list[ServingTable]:
        """Open the registry's tables for a file, without those of other models' tokens.

        These are reported only where this model has no table of the same sources.
        """
        named = self.registry.tables_for(file, language) if self.registry else []
        fitting = [(table, weight) for table, weight in named if table.fingerprint == self.fingerprint]
        for table, _ in named:
            if table.fingerprint != self.fingerprint and not covering_tables([one for one, _ in fitting], table):
                self._report(mismatch_message(table, self.model or "this model"))
        found = []
        for table, weight in fitting:
            files = list(filter(None, map(self._open, table.paths)))
            if len(files) == len(table.paths):
                sources = self.open_files.follow(table, self.fingerprint) if self.open_files else None
                found.append(ServingTable(table, weight, files, sources))
        return found

    def _report(self, problem: str) -> None:
        """Add a problem unless it is there."""
        if problem not in self.problems:
            self.problems.append(problem)

    def _open(self, path: Path) -> Table | None:
        """Return the table at a path, or None if it cannot be used."""
        if path not in self._opened:
            try:
                table = Table.open(path, fingerprint=self.fingerprint)
                if self.open_files and table.summary.vocab_size != self.open_files.encoder.tokenizer.vocab_size:
                    raise TableError(path, "its vocabulary is not that of its tokenizer")
                self._opened[path] = table
            except UserError as error:
                self._opened[path] = None
                self._report(str(error))
        return self._opened[path]


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
        related = related_languages(language or "")
        apart = {
            name: one.counted
            for name, one in self._buffers.items()
            if one.counted
            and (one.opened.language or language_of(PurePath(name))) in related
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

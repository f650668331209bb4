"""The tables that serve a file, open and up to date, and the mixture of them.

In: a registry, and what was edited since. Out: a `Mixture` for a file and its language.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ngram_builders.errors import UserError
from ngram_builders.index.mixture import DEFAULT_WEIGHT, Mixture, Pool, Signed
from ngram_builders.index.suffix_array import SearchedTexts
from ngram_builders.index.table_file import Table, TableError
from ngram_builders.registry.ngram_table import NgramTable, covering_tables, mismatch_message, trust
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.language_ids import related_languages
from spd_lsp.ngrams.background_process import Rebuilder, outdated_message
from spd_lsp.ngrams.open_documents import OpenDocument, real_path
from spd_lsp.ngrams.open_files import OpenFiles
from spd_lsp.ngrams.table_files import TableFiles
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

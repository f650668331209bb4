"""The tables that serve a file, open and up to date, and the mixture of them.

In: a registry, the built-in tables, and what was edited since. Out: a `Mixture` for a file and its language.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath

from ngram_builders.counting.token_cache import read_indexed_files
from ngram_builders.errors import UserError
from ngram_builders.registry.learnt_weights import LEARNT_FILE
from ngram_builders.registry.model_match import covering_tables, mismatch_message
from ngram_builders.registry.ngram_table import DEFAULT_WEIGHT, NgramTable, file_stamp, trust
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.language_ids import closest_language, related_languages
from ngram_builders.table.format import Columns, TableError
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SearchedTexts
from spd_lsp.ngrams.auto_rebuild import Rebuilder, outdated_message
from spd_lsp.ngrams.file_sync import real_path
from spd_lsp.ngrams.live_index import LiveIndex
from spd_lsp.ngrams.mixture import Mixture
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.ngrams.weight_learning import Learnable

OPEN_FILES = "open files"  # the name under which their counts are listed beside the tables
BUILT_IN_WEIGHT = 0.1  # against 0.7 for the user's own code; more raises perplexity on unseen packages


def _folders_in(home: Path) -> list[Path]:
    """A folder and those in it."""
    try:
        return [home, *(path for path in home.iterdir() if path.is_dir())]
    except OSError:
        return [home]


def _changed_at(folder: Path) -> int:
    """When a file was last put into a folder; 0 without the folder."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _label(table: NgramTable, file: Path | None, holder: object) -> str:
    """A file of a table as people know it; behind the table's name, if the file asked for lies elsewhere.

    Example: `httpx: _client.py`.
    """
    path = Path(str(holder))
    root = next((root for root in table.roots if path.is_relative_to(root)), path.parent)
    is_own = file is not None and Path(real_path(file)).is_relative_to(root)
    return path.relative_to(root).as_posix() if is_own else f"{table.name}: {path.relative_to(root).as_posix()}"


def _name(holder: object) -> str:
    """An open document as people know it."""
    return PurePath(str(holder)).name


@dataclass(frozen=True, slots=True)
class ServingTable:
    """An open table that serves a file, in one file or in several whose counts add up."""

    name: str
    weight: float
    files: tuple[Table, ...]
    table: NgramTable | None = None  # None: the table is built in
    learnt_in: str | None = None  # the folder in which its weight is learnt; None: it is given

    @property
    def columns(self) -> tuple[Columns, ...]:
        """The counts in its files."""
        return tuple(file.columns for file in self.files)


@dataclass(frozen=True, slots=True)
class Served:
    """What n-grams say where a completion is asked for."""

    mixture: Mixture | None
    is_gone: Callable[[str], bool] | None  # whether a name was deleted everywhere; None: none was
    revision: int  # of all that they were counted from, but for the open documents
    learnable: tuple[Learnable, ...] = ()  # the tables whose weights are learnt


class ServingTables:
    """The tables that serve a file: what the registry names for it, and the built-in one of its language.

    Tables are opened once and opened again when the registry says that something was rebuilt, or their files were
    written over. `run_idle_work` looks for that, and so does a request for another file than the last one, or once
    the registry's folders changed: the tables chosen for a file are kept until then, and their mixture until the
    live index changes. What cannot be used is left out; `problems` says why. With `live`, what was edited since a
    table was built counts as well, and what is open; with `rebuilder`, a table that fell far behind is replaced.
    """

    def __init__(
        self,
        registry: Registry | None,
        fingerprint: str,
        built_in: dict[str, Path],
        live: LiveIndex | None = None,
        rebuilder: Rebuilder | None = None,
        model: str = "",
    ) -> None:
        self.registry = registry
        self.fingerprint = fingerprint
        self.built_in = built_in
        self.live = live
        self.rebuilder = rebuilder
        self.model = model  # as problems name it
        self.problems: list[str] = []
        self.generation: Hashable = None
        self.learnt: Hashable = None  # the state of what was learnt of weights
        self.reloads = 0
        self.opened: dict[Path, Table | None] = {}
        self.stamps: dict[Path, Hashable] = {}  # of the tables' files, as they were
        self.folders: dict[Path, int] = {}  # the registry's, and when they changed
        self.file: tuple[Path | None, str | None] | None = None  # of the last request, with its language
        self.asked: tuple[Path | None, str | None] | None = None  # the same, also while its tables are not open
        self.tables: list[ServingTable] = []  # for that file
        self.pools: list[tuple[Columns, ...]] = []  # those tables with the changes since, as mixed
        self.followed = 0  # the live index's revision then
        self.mixture: Mixture | None = None

    def serve(self, document: OpenDocument, cursor: int) -> Served:
        """Bring the index up to date, and return what serves a document at the cursor.

        All of an open document is counted but for the line of the cursor, which would predict itself.
        """
        if self.live and document.name:
            self.live.set_active(document, cursor)
        mixture = self.mixture_for(document.path, document.language)
        learnable = (
            Learnable(pool, one.learnt_in, one.name) for pool, one in enumerate(self.tables) if one.learnt_in
        )
        return Served(mixture, self.live.gone_check if self.live else None, self.revision, tuple(learnable))

    def mixture_for(self, file: Path | None, language: str | None) -> Mixture | None:
        """Return the mixture for a file, or None if no table and no open file is about such code."""
        if any(_changed_at(folder) != then for folder, then in self.folders.items()):
            self.reload_if_changed()
        if self.file != (file, language):
            self.tables = self._tables_for(file, language)
            self.pools = []
            self.file = self.asked = (file, language)
        pools = [(*one.columns, *(self.changes(one.table) if one.table else ())) for one in self.tables]
        if self.live and (columns := self.live.open_files(language)):
            pools.append(columns)
        followed = self.live.revision if self.live else 0  # a table's texts are searched once its files are known
        if (pools, followed) != (self.pools, self.followed):
            self.pools = pools
            self.followed = followed
            self.mixture = self._mix(pools)
        return self.mixture if pools else None

    def know(self, language: str | None) -> bool:
        """Whether a table of the last request's file holds code in this language; open files do not count."""
        wanted = related_languages(language or "")
        held = (one.table.languages if one.table else [language] for one in self.tables)
        return any(not languages or not wanted.isdisjoint(languages) for languages in held)

    def _mix(self, pools: Sequence[Sequence[Columns]]) -> Mixture:
        """Return the mixture of the file's tables and of the open files, the last pool if there is one more."""
        names = [one.name for one in self.tables]
        weights = [one.weight for one in self.tables]
        if len(pools) > len(self.tables):
            names.append(OPEN_FILES)
            weights.append(DEFAULT_WEIGHT)
        return Mixture(pools, weights, names, texts=self._searched_texts())

    def _searched_texts(self) -> list[SearchedTexts]:
        """The texts of the file's tables as they are now, and of the open files."""
        if self.live is None or self.file is None:
            return []
        found: list[SearchedTexts] = []
        for one in self.tables:
            sync = self.live.synced.get(one.table.name) if one.table else None
            if sync:
                texts = sync.ledger.searched_texts([file.texts for file in one.files], sync.contents.documents)
                label = partial(_label, sync.table, self.file[0])
                found += (replace(text, trust=trust(one.weight), label=label) for text in texts)
        _, language = self.file
        for group, ledger in self.live.unassigned.items():
            if language in group:
                found += (replace(text, label=_name) for text in ledger.searched_texts())
        return found

    def _tables_for(self, file: Path | None, language: str | None) -> list[ServingTable]:
        """Return the registry's tables for a file, then the built-in one."""
        for _ in range(2):  # a build may replace a table before it is opened
            self.reload_if_changed()
            chosen = [
                (table, weight, self._open_files(table))
                for table, weight in self._registered_tables(file, language)
            ]
            if all(files for _, _, files in chosen):
                break
        choices = self.registry.choices_for(file, language) if self.registry else {}
        serving = [
            ServingTable(table.name, weight, files, table, choices[table.name].learnt_in)
            for table, weight, files in chosen
            if files and table.name in choices
        ]
        name = closest_language(language, self.built_in)
        if name and (built_in := self._open(self.built_in[name])):
            name = f"{name} (built in)" if any(one.name == name for one in serving) else name
            serving.append(ServingTable(name, BUILT_IN_WEIGHT, (built_in,)))
        return serving

    def changes(self, table: NgramTable) -> Sequence[Columns]:
        """Return the counts of what changed since a table was built."""
        if self.live is None:
            return ()
        home = table.path.parent
        return self.live.columns(table, lambda: read_indexed_files(home, table.layers, self.fingerprint))

    @property
    def revision(self) -> int:
        """Changes with the tables, and with the files that changed since; edits of open files do not count."""
        return self.reloads + (self.live.revision if self.live else 0)

    def run_idle_work(self, seconds: float) -> bool:
        """Index changes for about this long, look for other tables, start due rebuilds; whether there is more."""
        more = self.live is not None and self.live.run_idle_work(seconds)
        if not more:  # it costs up to milliseconds where hundreds of packages have tables
            self.reload_if_changed()
            asked = self.asked or (self.live and self.live.latest)
            if self.file is None and asked:  # so the next request finds its tables open, and up to date
                self.mixture_for(*asked)
        if self.live is None:
            return False
        more = more or self.live.next_work() is not None
        outgrown = self.live.tables.outdated()
        problems = [outdated_message(table) for table in outgrown]
        if self.rebuilder is not None:
            for name in self.rebuilder.update(outgrown):
                self.live.begin_anew(name)
                self.file = None
                more = True
            problems = self.rebuilder.problems
        for problem in problems:
            self._report(problem)
        return more

    def reload_if_changed(self) -> None:
        """Close all tables if one was rebuilt, chosen, removed or overwritten since they were opened."""
        if self.registry:
            self.folders = {path: _changed_at(path) for path in _folders_in(self.registry.folder)}
            learnt = file_stamp(self.registry.folder / LEARNT_FILE)
            if learnt != self.learnt:
                self.learnt = learnt
                self.file = None
        generation = self.registry.generation() if self.registry else None
        kept = all(file_stamp(path) == found for path, found in self.stamps.items())
        if kept and generation == self.generation:
            return
        self.generation = generation
        self.reloads += 1
        self.opened = {}
        self.stamps = {}
        self.file = None
        if self.registry:
            if not kept:
                self.registry.latest = None  # it knows no table's file, only that none was replaced
            tables = self.registry.tables()
            self.stamps = {path: file_stamp(path) for table in tables for path in table.paths}
            self.problems = [fault for fault in (self.registry.fault(), *(one.fault for one in tables)) if fault]
            if self.live:
                self.live.retain(table.name for table in tables)

    def _registered_tables(self, file: Path | None, language: str | None) -> list[tuple[NgramTable, float]]:
        """The registry's word, if there is a registry, without the tables of other models' tokens.

        Those are told only where this model has no table of the same sources.
        """
        named = self.registry.tables_for(file, language) if self.registry else []
        fitting = [(table, weight) for table, weight in named if table.fingerprint == self.fingerprint]
        for table, _ in named:
            if table.fingerprint == self.fingerprint or "package" in table.recipe:
                continue
            if not covering_tables([one for one, _ in fitting], table):
                self._report(mismatch_message(table, self.model or "this model"))
        return fitting

    def _report(self, problem: str) -> None:
        """Add a problem unless it is there."""
        if problem not in self.problems:
            self.problems.append(problem)

    def _open_files(self, table: NgramTable) -> tuple[Table, ...]:
        """Return the files of a table; none if one of them cannot be used."""
        files = [self._open(path) for path in table.paths]
        return tuple(file for file in files if file) if all(files) else ()

    def _open(self, path: Path) -> Table | None:
        """Return the table at a path, or None if it cannot be used."""
        if path not in self.opened:
            self.stamps[path] = file_stamp(path)
            try:
                table = Table.open(path, fingerprint=self.fingerprint)
                if self.live and table.summary.vocab_size != self.live.vocab_size:
                    raise TableError(path, "its vocabulary is not that of its tokenizer")
                _ = table.columns  # read into memory now, where mapping is not safe
                self.opened[path] = table
            except UserError as error:
                self.opened[path] = None
                self._report(str(error))
        return self.opened[path]

"""The n-gram tables of one user: a folder per table, and a record of which tables serve what.

In: a function that writes a table, or a file to serve. Out: tables with weights. Knows no tokens. What is written
is complete before it is renamed into place, and one writer at a time renames; readers take no lock and see either
the old or the new.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from ngram_builders.errors import UserError
from ngram_builders.registry.assignments import (
    KNOWN_LANGUAGES,
    Assignment,
    Assignments,
    Choice,
    choices_for,
    read_assignments,
)
from ngram_builders.registry.cleanup import (
    BUILD_LOCK,
    Leftover,
    find_leftovers,
    remove_leftover,
    remove_superseded,
    total_size,
)
from ngram_builders.registry.folder_choices import forget_missing_folders
from ngram_builders.registry.learnt_weights import forget_learnt_weights, read_learnt_weights
from ngram_builders.registry.locks import hold_lock
from ngram_builders.registry.ngram_table import (
    DEFAULT_WEIGHT,
    INDEX_FILE,
    PARSE_ERRORS,
    NgramTable,
    check_name,
    check_weight,
    file_stamp,
    has_index,
    is_name,
    make_index,
    move_table,
    read_ngram_table,
    table_name,
    write_record,
)
from ngram_builders.scratch import scratch_path, write_error
from ngram_builders.table.format import TableSummary
from ngram_builders.table.reader import Table

BUILD_LOCK_TIMEOUT = 3600.0  # seconds that a build waits for another one of the same table
_ASSIGNMENTS_FILE = "workspaces.msgpack"
_BUSY_TIMEOUT = 5.0  # seconds that a removal waits for a build


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The registry's state at one generation."""

    generation: Hashable
    tables: dict[str, NgramTable]
    assignments: Assignments


class Registry:
    """The n-gram tables of one user. Nothing is created before the first write."""

    def __init__(self, folder: Path | None = None) -> None:
        default = Path(platformdirs.user_data_dir("spd-lsp", appauthor=False)) / "ngrams"
        self.folder = default if folder is None else folder
        self.latest: _Snapshot | None = None

    # --- tables ----------------------------------------------------------------------------------------------

    def install(
        self,
        name: str,
        write_table: Callable[[Path], TableSummary],
        *,
        roots: Sequence[Path] = (),
        weight: float = DEFAULT_WEIGHT,
        recipe: Mapping[str, Any] = {},
        overwrite: bool = True,
        kept: Sequence[Path] = (),
        partitions: Sequence[Callable[[Path], TableSummary]] = (),
    ) -> NgramTable:
        """Write a table's files and make them its current ones; the old ones serve until then.

        recipe, the build's options in values that msgpack can hold, is kept with the table. Without overwrite
        UserError is raised if the table exists by then. kept: the base and the segments to which the new file is
        added as a segment; the summary is then of all of them. partitions: write the other files of a base.
        """
        check_weight(weight)
        home = self.table_folder(name)
        writes = (write_table, *partitions)
        scratches = [scratch_path(home / "table") for _ in writes]
        try:
            summary, *_ = [write(scratch) for write, scratch in zip(writes, scratches, strict=True)]
            for scratch in scratches:
                Table.open(scratch).verify_checksums()  # what others made is verified before
            tables = [home / table_name(scratch) for scratch in scratches]
            with self._writing():
                if not overwrite:
                    self.check_free(name)
                for scratch, table in zip(scratches, tables, strict=True):
                    move_table(scratch, table)
                index = make_index([*kept, tables[0]], summary, roots, weight, recipe, tables[1:])
                write_record(home / INDEX_FILE, index)
                remove_superseded(home, [*kept, *tables])
        except OSError as error:
            raise self._write_error(error) from error
        finally:
            for scratch in scratches:
                with suppress(OSError):
                    scratch.unlink()
        return self.find(name)

    def table_folder(self, name: str) -> Path:
        """A table's folder, created if it is missing: its files, its index, and what builds keep beside them."""
        return self._create_folder(check_name(name))

    @contextmanager
    def lock_for_build(self, name: str) -> Iterator[Path]:
        """The table's folder, for one build at a time; a second one waits until the first has ended."""
        home = self.table_folder(name)
        lock = hold_lock(home / BUILD_LOCK, BUILD_LOCK_TIMEOUT)
        with ExitStack() as stack:
            try:
                stack.enter_context(lock)
            except OSError as error:
                raise self._write_error(error) from error
            yield home

    def names(self) -> list[str]:
        """The folders that have an index."""
        try:
            entries = sorted(entry.name for entry in os.scandir(self.folder))
        except OSError:
            return []
        return [name for name in entries if is_name(name) and has_index(self.folder / name)]

    def tables(self) -> list[NgramTable]:
        """Every table by name, those with a fault included."""
        return [table for name in self.names() if (table := read_ngram_table(self.folder / name))]

    def find(self, name: str) -> NgramTable:
        """The table of that name; UserError if there is none."""
        check_name(name)
        table = read_ngram_table(self.folder / name) if name in self.names() else None
        if table is None:
            known = ", ".join(self.names()) or "none yet"
            raise UserError(f"no n-gram table is named {name!r} (known: {known}); run: spd-lsp build-ngrams REPO")
        return table

    def check_new_name(self, name: str) -> str:
        """Return the name if a table can be made with it, or has it already."""
        if check_name(name).lower() in KNOWN_LANGUAGES and name not in self.names():
            remedy = f"choose another name, such as --name {name}-code"
            raise UserError(f"{name!r} is a language, and built-in tables are named after languages; {remedy}")
        return name

    def check_free(self, name: str, remedy: str = "") -> None:
        """Refuse the name of a table that exists."""
        if name in self.names():
            remedy = remedy or f"choose another name, or first run: spd-lsp ngrams remove {name}"
            raise UserError(f"an n-gram table named {name} exists already; {remedy}")

    def remove(self, name: str) -> None:
        """Delete a table, its files and its assignments; UserError during a build, which would bring it back."""
        self.find(name)
        try:
            with hold_lock(self.folder / name / BUILD_LOCK, _BUSY_TIMEOUT):
                pass  # Windows deletes nothing that is open
        except UserError as error:
            raise UserError(f"n-gram table {name} is being built; try again when that is done") from error
        except OSError:
            pass  # where nothing can be written, nothing is built
        with self._writing():
            self._delete(name)

    def _delete(self, name: str) -> None:
        """Delete a table; without its index a folder holds none, so that goes first."""
        (self.folder / name / INDEX_FILE).unlink(missing_ok=True)
        assignments = self.assignments()
        self._write_assignments(assignments.only(assignments.names() - {name}))
        forget_learnt_weights(self.folder, lambda folder, table: table != name)
        shutil.rmtree(self.folder / name, ignore_errors=True)  # `prune` deletes what Windows still maps

    # --- what serves a file -----------------------------------------------------------------------------------

    def assign_workspace(self, workspace: Path, weights: Sequence[tuple[str, float | None]]) -> None:
        """Serve the files below a folder from these tables only; an empty assignment undoes it."""
        self._assign("workspaces", str(workspace.resolve()), weights)

    def add_to_folder(self, folder: Path, weights: Sequence[tuple[str, float | None]]) -> None:
        """Serve the files below a folder from these tables as well; an empty assignment undoes it."""
        self._assign("additions", str(folder.resolve()), weights)

    def assign_language(self, language: str, weights: Sequence[tuple[str, float | None]]) -> None:
        """Serve a language's files from these tables as well, anywhere; an empty assignment undoes it."""
        if weights and language not in KNOWN_LANGUAGES:
            raise UserError(f"unknown language {language!r}; choose one of: {', '.join(sorted(KNOWN_LANGUAGES))}")
        self._assign("languages", language, weights)

    def assign_dependencies(self, project: Path, weights: Sequence[tuple[str, float | None]]) -> None:
        """Serve a project's files from the tables of these packages as well; an empty assignment undoes it."""
        self._assign("dependencies", str(project.resolve()), weights)

    def assign_like(self, name: str, model_name: str) -> None:
        """Have a table of another model serve wherever this one was chosen to."""
        with self._writing():
            self._write_assignments(self.assignments().with_alias(name, self.find(model_name).name))

    def _assign(self, kind: str, user: str, weights: Sequence[tuple[str, float | None]]) -> None:
        """Record what serves a workspace, project or language. A folder has a choice or additions, not both."""
        assignment = self._check_assignment(weights)
        with self._writing():
            before = self.assignments()
            changed = {kind: {**getattr(before, kind), user: assignment}}
            if kind == "workspaces":
                changed["additions"] = {**before.additions, user: ()}
            self._write_assignments(replace(before, **changed))

    def _check_assignment(self, weights: Sequence[tuple[str, float | None]]) -> Assignment:
        """The assignment if its tables exist and its weights are valid."""
        return tuple(
            (self.find(name).name, None if weight is None else check_weight(float(weight)))
            for name, weight in weights
        )

    def assignments(self) -> Assignments:
        """What the user assigned; nothing if the record cannot be read, see `fault`."""
        try:
            return read_assignments(self.folder / _ASSIGNMENTS_FILE)
        except PARSE_ERRORS:
            return Assignments()

    def _write_assignments(self, assignments: Assignments) -> None:
        """Replace the record of assignments if it changed; one that cannot be read is kept aside."""
        file = self.folder / _ASSIGNMENTS_FILE
        try:
            if read_assignments(file).to_record() == assignments.to_record():
                return
        except PARSE_ERRORS:
            file.replace(file.with_name(f"{_ASSIGNMENTS_FILE}.bad"))
        write_record(file, assignments.to_record())

    def tables_for(self, file: Path | None, language: str | None) -> list[tuple[NgramTable, float]]:
        """The tables for a file with their weights, by the rule of `ngram_builders.registry.assignments`.

        While nothing is rebuilt this costs no more than generation().
        """
        choices = self.choices_for(file, language)
        return [(self._read_snapshot().tables[name], choice.weight) for name, choice in choices.items()]

    def choices_for(self, file: Path | None, language: str | None) -> dict[str, Choice]:
        """The same by name, with why each of them serves the file."""
        state = self._read_snapshot()
        learnt = read_learnt_weights(self.folder)
        return choices_for(state.assignments, state.tables, file and file.resolve(), language, learnt)

    def _read_snapshot(self) -> _Snapshot:
        """The registry's state, read again only when something changed."""
        generation = self.generation()
        if self.latest is None or self.latest.generation != generation:
            tables = {table.name: table for table in self.tables()}
            self.latest = _Snapshot(generation, tables, self.assignments())
        return self.latest

    def generation(self) -> Hashable:
        """A value that changes whenever a table is built, assigned or removed; costs a stat per table."""
        stamps = [file_stamp(self.folder / _ASSIGNMENTS_FILE)]
        with suppress(OSError):
            stamps += sorted(file_stamp(Path(entry.path) / INDEX_FILE) for entry in os.scandir(self.folder))
        return tuple(stamps)

    # --- the folder -------------------------------------------------------------------------------------------

    def prune(self, *, gone: bool = False, dry_run: bool = False) -> tuple[list[Leftover], list[Leftover]]:
        """Delete what is not needed. -> what was deleted, and what could not be.

        With gone, also tables whose repositories are all gone, and what was chosen for folders that are.
        """
        try:
            if not self.folder.is_dir():
                return [], []
        except OSError as error:
            raise self._write_error(error) from error
        with self._writing():
            leftovers = [*find_leftovers(self.folder), *(self._tables_without_roots() if gone else [])]
            failed = [] if dry_run else [leftover for leftover in leftovers if not self._try_to_remove(leftover)]
            kept = self.assignments().only(self.names())
            if gone:
                kept = kept.only_existing()
            if not dry_run:
                self._write_assignments(kept)
                if gone:
                    forget_missing_folders(self.folder)
                    forget_learnt_weights(self.folder, lambda folder, table: Path(folder).is_dir())
        return [leftover for leftover in leftovers if leftover not in failed], failed

    def _tables_without_roots(self) -> Iterator[Leftover]:
        """Tables whose repositories are all gone, and packages that no project depends on."""
        used = self.assignments().only_existing().names()
        for table in self.tables():
            if "package" in table.recipe and table.name not in used:
                reason = "no project that is still there depends on it"
                yield Leftover(self.folder / table.name, reason, total_size(self.folder / table.name))
            elif table.roots and not any(root.exists() for root in table.roots):
                reason = f"its repository is gone: {', '.join(map(str, table.roots))}"
                yield Leftover(self.folder / table.name, reason, total_size(self.folder / table.name))

    def _try_to_remove(self, leftover: Leftover) -> bool:
        """Whether the system let a leftover be removed."""
        with suppress(OSError):
            if (leftover.path / INDEX_FILE).exists():
                self._delete(leftover.path.name)
            else:
                remove_leftover(leftover)
        return not leftover.path.exists()

    def fault(self) -> str | None:
        """What is wrong with the folder or the record of assignments; None if nothing is, or neither exists."""
        try:
            os.scandir(self.folder).close()
        except FileNotFoundError:
            return None
        except OSError as error:
            cause = (
                "it is a file" if isinstance(error, NotADirectoryError) else (error.strerror or str(error)).lower()
            )
            remedy = "make it a folder that you can read, or choose another with --data-dir"
            return f"cannot open the folder of n-gram tables {self.folder}: {cause}; {remedy}"
        try:
            read_assignments(self.folder / _ASSIGNMENTS_FILE)
        except PARSE_ERRORS:
            remedy = "choose again with: spd-lsp ngrams use NAME --workspace DIR"
            return f"cannot read which n-gram tables you chose, in {self.folder / _ASSIGNMENTS_FILE}; {remedy}"
        return None

    def _create_folder(self, name: str = "") -> Path:
        """Create the registry's folder, readable by its owner only, and a table's folder in it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / name).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._write_error(error) from error
        return self.folder / name

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Be the only writer; an OSError becomes one that names the folder."""
        self._create_folder()
        try:
            with hold_lock(self.folder / ".lock"):
                yield
        except OSError as error:
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> UserError:
        """The error for a folder that cannot be written."""
        remedy = "make it writable or choose another folder with --data-dir"
        return write_error(f"the n-gram registry {self.folder}", error, remedy)

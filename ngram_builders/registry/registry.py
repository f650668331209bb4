"""The n-gram tables of one user: a folder per table, and a record of which tables serve which files.

In: a function that writes a table, or a file to complete. Out: tables with weights. Knows no tokens. What is
written is complete before it is renamed into place, and one writer at a time renames; readers take no lock and see
either the old or the new. An exported file holds the code as tokens, and in its header the tokenizer, the
languages, the model and the names of folders, but no paths.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import shutil
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs

from ngram_builders.errors import UserError
from ngram_builders.index.table_file import Table, TableError, read_summary, write_table
from ngram_builders.registry.assignments import Assignment, Assignments, read_assignments, weights_for
from ngram_builders.registry.ngram_table import (
    INDEX_FILE,
    TABLE_PATTERN,
    NgramTable,
    check_name,
    is_name,
    read_ngram_table,
    resolve_roots,
    table_name,
)
from ngram_builders.scratch import (
    RECORD_ERRORS,
    SCRATCH_PATTERN,
    file_stamp,
    hold_lock,
    read_chunks,
    read_record,
    replace_file,
    scratch_path,
    write_error,
    write_record,
)
from ngram_builders.sources.language_ids import check_language

_LOCK_FILE = ".lock"
_BUILD_LOCK = ".building"  # held by a build in its table's folder
_BUILD_TIMEOUT = 3600.0  # seconds that a build waits for another one of the same table
_BUSY_TIMEOUT = 5.0  # seconds that a removal waits for a build
_ASSIGNMENTS_FILE = "workspaces.msgpack"
_FOLDERS_FILE = "folders.msgpack"


class FolderChoice(enum.Enum):
    """The decision about a folder that an editor opened."""

    INDEXED = "indexed"  # automatically, with a message to the user
    EXCLUDED = "excluded"  # by the user


class Registry:
    """The n-gram tables of one user. Nothing is created before the first write."""

    def __init__(self, folder: Path | None = None) -> None:
        default = Path(platformdirs.user_data_dir("spd-lsp", appauthor=False)) / "ngrams"
        self.folder = default if folder is None else folder
        self.latest: tuple[Hashable, dict[str, NgramTable], Assignments] | None = None  # after a generation

    # --- tables ----------------------------------------------------------------------------------------------

    def install(
        self,
        name: str,
        writes: Sequence[Callable[[Path], object]],
        *,
        roots: Sequence[Path] = (),
        recipe: Mapping[str, Any] = {},
        overwrite: bool = True,
    ) -> NgramTable:
        """Write a table's files and make them its current ones; the old ones serve until then.

        recipe, the build's options in values that msgpack can hold, is kept with the table. Without overwrite
        UserError is raised if the table exists by then.
        """
        home = self.table_folder(name)
        scratches = [scratch_path(home / "table") for _ in writes]
        try:
            with self._reporting():
                for write, scratch in zip(writes, scratches, strict=True):
                    write(scratch)
                tables = [home / table_name(scratch) for scratch in scratches]
            with self._writing():
                if not overwrite and name in self.names():
                    remedy = "choose another name with --name, or replace it with --replace"
                    raise UserError(f"an n-gram table named {name} exists already; {remedy}")
                for scratch, table in zip(scratches, tables, strict=True):
                    try:
                        scratch.replace(table)
                    except PermissionError:
                        if not table.exists():  # else Windows has that very content mapped
                            raise
                folders = [str(root) for root in resolve_roots(roots)]
                names = [table.name for table in tables]
                index = {"tables": names, "roots": folders, "built": time.time(), "recipe": dict(recipe)}
                write_record(home / INDEX_FILE, index)
                for old in set(home.glob(TABLE_PATTERN)).difference(tables):
                    with suppress(OSError):  # Windows may still map it; then it goes with the next one
                        old.unlink()
        finally:
            for scratch in scratches:
                with suppress(OSError):
                    scratch.unlink()
        return self.find(name)

    def table_folder(self, name: str) -> Path:
        """A table's folder, created if it is missing: its files, its index, and what builds keep beside them."""
        home = self.folder / check_name(name)
        with self._reporting():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            home.mkdir(exist_ok=True, mode=0o700)
        return home

    @contextmanager
    def lock_for_build(self, name: str, timeout: float = _BUILD_TIMEOUT) -> Iterator[Path]:
        """The table's folder, for one build at a time; a second one waits until the first has ended."""
        home = self.table_folder(name)
        with hold_lock(home / _BUILD_LOCK, timeout, f"n-gram table {name} is being built"):
            for scratch in home.glob(SCRATCH_PATTERN):  # of one that was killed
                with suppress(OSError):
                    scratch.unlink()
            yield home

    def names(self) -> list[str]:
        """The names of all tables."""
        return [table.name for table in self.tables()]

    def tables(self) -> list[NgramTable]:
        """Every table by name, those with a fault included."""
        try:
            names = sorted(entry.name for entry in self.folder.iterdir() if is_name(entry.name))
        except OSError:
            return []
        return [table for name in names if (table := read_ngram_table(self.folder / name))]

    def find(self, name: str) -> NgramTable:
        """The table of that name; UserError if there is none."""
        table = read_ngram_table(self.folder / check_name(name))
        if table is None:
            known = ", ".join(self.names()) or "none yet"
            raise UserError(f"no n-gram table is named {name!r} (known: {known}); run: spd-lsp build-ngrams REPO")
        return table

    def remove(self, name: str) -> None:
        """Delete a table, its files and its assignments; UserError during a build, which would bring it back."""
        self.find(name)
        with self.lock_for_build(name, _BUSY_TIMEOUT):
            pass  # Windows deletes nothing that is open
        with self._writing():
            (self.folder / name / INDEX_FILE).unlink(missing_ok=True)  # first: without it a folder holds no table
            if name in (known := self.assignments().names()):
                self._write_assignments(self.assignments().only(known - {name}))
            shutil.rmtree(self.folder / name, ignore_errors=True)  # but for what Windows still maps

    # --- what serves a file -----------------------------------------------------------------------------------

    def assign_workspace(self, workspace: Path, weights: Sequence[tuple[str, float | None]]) -> None:
        """Serve the files below a folder from these tables only; an empty assignment undoes it."""
        self._assign("workspaces", str(workspace.resolve()), weights)

    def assign_language(self, language: str, weights: Sequence[tuple[str, float | None]]) -> None:
        """Serve a language's files from these tables as well, anywhere; an empty assignment undoes it."""
        self._assign("languages", check_language(language) if weights else language, weights)

    def _assign(self, kind: str, user: str, weights: Sequence[tuple[str, float | None]]) -> None:
        """Record what serves a workspace or language; UserError if there is no such table."""
        assignment: Assignment = {self.find(name).name: weight for name, weight in weights}
        with self._writing():
            before = self.assignments()
            self._write_assignments(
                dataclasses.replace(before, **{kind: {**getattr(before, kind), user: assignment}})
            )

    def assignments(self) -> Assignments:
        """The user's assignments; none if the record cannot be read, see `fault`."""
        try:
            return read_assignments(self.folder / _ASSIGNMENTS_FILE)
        except RECORD_ERRORS:
            return Assignments()

    def _write_assignments(self, assignments: Assignments) -> None:
        """Replace the record of assignments."""
        kinds = dataclasses.asdict(assignments).items()
        record = {kind: {user: given for user, given in sorted(users.items()) if given} for kind, users in kinds}
        write_record(self.folder / _ASSIGNMENTS_FILE, record)

    def tables_for(self, file: Path | None, language: str | None) -> list[tuple[NgramTable, float]]:
        """The tables for a file with their weights, by the rule of `ngram_builders.registry.assignments`.

        While nothing is rebuilt this costs no more than generation().
        """
        tables, assignments = self._read_state()
        weights = weights_for(assignments, tables, file and file.resolve(), language)
        return [(tables[name], weight) for name, weight in weights.items()]

    def _read_state(self) -> tuple[dict[str, NgramTable], Assignments]:
        """The registry's state, read again only when something changed."""
        generation = self.generation()
        if self.latest is None or self.latest[0] != generation:
            self.latest = generation, {table.name: table for table in self.tables()}, self.assignments()
        return self.latest[1:]

    def generation(self) -> Hashable:
        """A value that changes whenever a table is built, assigned or removed; costs a stat per table."""
        stamps = [file_stamp(self.folder / _ASSIGNMENTS_FILE)]
        with suppress(OSError):
            folders = (entry for entry in os.scandir(self.folder) if entry.is_dir())  # not the record of usage
            stamps += sorted(file_stamp(Path(folder) / INDEX_FILE) for folder in folders)
        return tuple(stamps)

    # --- folders that editors opened ---------------------------------------------------------------------------

    def folder_choices(self) -> dict[Path, FolderChoice]:
        """The decisions about folders, by their real paths; none if there is no record or it is damaged."""
        try:
            record = read_record(self.folder / _FOLDERS_FILE)
            return {Path(str(folder)): FolderChoice(choice) for folder, choice in record.items()}
        except RECORD_ERRORS:
            return {}

    def choose_folder(self, folder: Path, choice: FolderChoice) -> None:
        """Remember what was decided about a folder."""
        with self._writing():
            choices = {**self.folder_choices(), folder: choice}
            write_record(self.folder / _FOLDERS_FILE, {str(one): choice.value for one, choice in choices.items()})

    # --- the folder -------------------------------------------------------------------------------------------

    def fault(self) -> str | None:
        """The problem with the folder or the record of assignments, in a sentence; None without one."""
        try:
            os.scandir(self.folder).close()
            read_assignments(self.folder / _ASSIGNMENTS_FILE)
        except FileNotFoundError:
            return None
        except OSError as error:
            remedy = "make it a folder that you can read, or choose another with --data-dir"
            return (
                f"cannot open the folder of n-gram tables {self.folder}: {str(error.strerror).lower()}; {remedy}"
            )
        except RECORD_ERRORS:
            remedy = "choose again with: spd-lsp ngrams use NAME --workspace DIR"
            return f"cannot read which n-gram tables you chose, in {self.folder / _ASSIGNMENTS_FILE}; {remedy}"
        return None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Be the only writer of the registry's records."""
        with self._reporting():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # for its owner only
            with hold_lock(self.folder / _LOCK_FILE):
                yield

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn an OSError into one that names the folder and a remedy."""
        try:
            yield
        except OSError as error:
            remedy = "make it writable or choose another folder with --data-dir"
            raise write_error(f"the n-gram registry {self.folder}", error, remedy) from error


# --- tables for other people ----------------------------------------------------------------------------------


def export_table(registry: Registry, name: str, file: Path, *, replace: bool = False) -> list[Path]:
    """Copy a table to a file, or into a folder as NAME.ngt, each completely or not at all. -> where it is.

    A table of several shards becomes as many files, NAME-2.ngt and so on.
    """
    table = registry.find(name)
    if table.fault:
        raise UserError(table.fault)
    first = file / f"{name}.ngt" if file.is_dir() else file
    targets = [first, *(first.with_stem(f"{first.stem}-{n}") for n in range(2, len(table.paths) + 1))]
    for target in targets:
        if target.exists() and not replace:
            raise UserError(f"{target} exists; choose another file or add --replace")
    for path, target in zip(table.paths, targets, strict=True):
        shard = Table.open(path)
        shard.verify()
        write_table(target, shard.array, dataclasses.replace(shard.summary, origin=_origin_of(table)))
    return targets


def _origin_of(table: NgramTable) -> Mapping[str, Any]:
    """The facts in an exported file: the model, the time of the build, and names of folders without paths."""
    if table.is_imported:
        return table.origin
    model = Path(table.model).name if Path(table.model).is_absolute() else table.model
    return {"model": model, "built": table.built, "sources": ", ".join(root.name for root in table.roots)}


def import_table(registry: Registry, file: Path, name: str | None = None, *, replace: bool = False) -> NgramTable:
    """Install a table from a file, by default named after the file; its data is verified.

    Without replace, an existing table stays.
    """
    name = check_name(file.stem if name is None else name)

    def write(scratch: Path) -> None:
        replace_file(scratch, read_chunks(file))
        Table.open(scratch).verify()

    try:
        recipe = {"imported": str(file.resolve()), "origin": dict(read_summary(file).origin)}
        with registry.lock_for_build(name):
            return registry.install(name, [write], recipe=recipe, overwrite=replace)
    except TableError as error:
        remedy = "export it again where it was built, with this version of spd-lsp"
        raise TableError(file, error.cause, remedy) from error

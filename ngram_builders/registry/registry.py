"""The n-gram tables of one person: a folder per domain, and a record of who uses which.

Comes in: a function that writes a table, or a file to serve. Goes out: domains with weights. Knows no tokens.
Whatever is written is complete before it is renamed into place, and one writer at a time renames; readers take no
lock and see either the old or the new.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from ngram_builders.errors import UserError
from ngram_builders.registry.assignments import KNOWN_LANGUAGES, Assignments, domains_for, read_assignments
from ngram_builders.registry.cleanup import (
    BUILD_LOCK,
    Leftover,
    find_leftovers,
    remove_leftover,
    remove_superseded,
    total_size,
)
from ngram_builders.registry.domains import (
    DEFAULT_WEIGHT,
    INDEX_FILE,
    PARSE_ERRORS,
    Domain,
    check_name,
    check_weight,
    has_index,
    is_name,
    make_index,
    move_table,
    read_domain,
    table_name,
    write_record,
)
from ngram_builders.registry.locks import hold_lock
from ngram_builders.table.format import TableSummary
from ngram_builders.table.reader import Table

_USES = "workspaces.msgpack"
_ATTEMPTS = 5  # at reading everything between two writes
BUILD_LOCK_TIMEOUT = 3600.0  # seconds that a build waits for another one of the same domain


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the registry knew at one generation."""

    generation: Hashable
    domains: dict[str, Domain]
    uses: Assignments


class Registry:
    """The n-gram tables of one person. Nothing is created before the first write."""

    def __init__(self, folder: Path | None = None) -> None:
        default = Path(platformdirs.user_data_dir("spd-lsp", appauthor=False)) / "ngrams"
        self.folder = default if folder is None else folder
        self.latest: Snapshot | None = None

    def install(
        self,
        name: str,
        write_table: Callable[[Path], TableSummary],
        *,
        roots: Sequence[Path] = (),
        weight: float = DEFAULT_WEIGHT,
        recipe: Mapping[str, Any] = {},
        overwrite: bool = True,
    ) -> Domain:
        """Have a table written and make it the domain's current one; the old one serves until then.

        recipe is kept as `Domain.recipe`: what the build was asked, in values that msgpack can hold. Without
        overwrite a domain that exists meanwhile stays as it is, and UserError is raised.
        """
        check_weight(weight)
        home = self.domain_folder(name)
        scratch = home / f".table.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            summary = write_table(scratch)
            Table.open(scratch).verify()
            table = home / table_name(scratch)
            with self.lock():
                if not overwrite:
                    self.check_free(name)
                move_table(scratch, table)
                write_record(home / INDEX_FILE, make_index(table, summary, roots, weight, recipe))
                remove_superseded(home, table)
        except (UserError, OSError) as error:
            if not home.is_dir():
                raise UserError(
                    f"expected the folder of n-gram domain {name}, found none: it was removed or renamed while "
                    "its table was written; build it again"
                ) from error
            raise self.unwritable(error) if isinstance(error, OSError) else error from error
        finally:
            with suppress(OSError):
                scratch.unlink()
        return self.find(name)

    def domain_folder(self, name: str) -> Path:
        """The domain's folder, made if it is missing: its table, its index, and what builds keep beside them."""
        return self.prepare(check_name(name))

    @contextmanager
    def lock_for_build(self, name: str) -> Iterator[Path]:
        """The domain's folder, for one build at a time; a second one waits until the first has ended."""
        home = self.domain_folder(name)
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(home / BUILD_LOCK, BUILD_LOCK_TIMEOUT))
            except OSError as error:
                raise self.unwritable(error) from error
            yield home

    def domains(self) -> list[Domain]:
        """Every domain by name, those with a fault included."""
        return [domain for name in self.names() if (domain := read_domain(self.folder / name))]

    def find(self, name: str) -> Domain:
        """The domain of that name."""
        check_name(name)
        domain = read_domain(self.folder / name) if name in self.names() else None
        if domain is None:
            known = ", ".join(self.names()) or "none"
            raise UserError(
                f"expected a known n-gram domain, found {name!r}, known: {known}; run: spd-lsp build-ngrams REPO"
            )
        return domain

    def check_free(self, name: str) -> None:
        """Refuse the name of a domain that exists."""
        if name in self.names():
            raise UserError(
                f"expected a name that is free, found an n-gram domain {name}; choose another name, "
                f"or first run: spd-lsp ngrams remove {name}"
            )

    def remove(self, name: str) -> None:
        """Forget a domain, its tables and its uses."""
        self.find(name)
        with self.writing():
            self.forget(name)

    def forget(self, name: str) -> None:
        """Delete a domain; without its index a folder is no domain, so that comes first."""
        (self.folder / name / INDEX_FILE).unlink(missing_ok=True)
        self.write_assignments(self.assignments().only(self.assignments().names() - {name}))
        shutil.rmtree(self.folder / name, ignore_errors=True)  # what Windows still maps stays for `prune`

    def rename(self, old: str, new: str) -> Domain:
        """Give a domain another name; whoever uses it goes on. A crash leaves it under one of the two names."""
        self.find(old)
        check_name(new)
        with self.writing():
            self.check_free(new)
            before = self.assignments().only(self.assignments().names() - {new})
            self.write_assignments(before.both(old, new))
            try:
                (self.folder / old).rename(self.folder / new)
            except OSError:
                self.write_assignments(before)
                raise
            self.write_assignments(before.both(old, new).only(before.names() - {old} | {new}))
        return self.find(new)

    def assign_workspace(self, workspace: Path, chosen: Sequence[tuple[str, float]]) -> None:
        """Serve the files below a folder from these domains, and only these; an empty choice undoes it."""
        choice = self.choice(chosen)
        with self.writing():
            uses = self.assignments()
            workspaces = {**uses.workspaces, str(workspace.resolve()): choice}
            self.write_assignments(replace(uses, workspaces=workspaces))

    def assign_language(self, language: str, chosen: Sequence[tuple[str, float]]) -> None:
        """Serve a language's files from these domains too, wherever they lie; an empty choice undoes it."""
        choice = self.choice(chosen)
        if choice and language not in KNOWN_LANGUAGES:
            known = ", ".join(sorted(KNOWN_LANGUAGES))
            raise UserError(f"expected a known language, found {language!r}; choose one of: {known}")
        with self.writing():
            uses = self.assignments()
            self.write_assignments(replace(uses, languages={**uses.languages, language: choice}))

    def choice(self, chosen: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
        """What was chosen, if all of it is known and can be weighed."""
        return tuple((self.find(name).name, check_weight(float(weight))) for name, weight in chosen)

    def prune(self, *, gone: bool = False, dry_run: bool = False) -> tuple[list[Leftover], list[Leftover]]:
        """Delete what nobody needs, and move aside what cannot be read. -> what was done, and what could not be.

        With gone, also domains all of whose repositories are gone and choices for folders that are.
        """
        try:
            if not self.folder.is_dir():
                return [], []
        except OSError as error:
            raise self.unwritable(error) from error
        with self.writing():
            found = [*find_leftovers(self.folder), *(self.homeless() if gone else [])]
            failed = [] if dry_run else [leftover for leftover in found if not self.cleared(leftover)]
            kept = self.assignments().only(self.names())
            if gone:
                there = {w: choice for w, choice in kept.workspaces.items() if Path(w).is_dir()}
                kept = replace(kept, workspaces=there)
            if not dry_run:
                self.write_assignments(kept)
        return [leftover for leftover in found if leftover not in failed], failed

    def homeless(self) -> Iterator[Leftover]:
        """Domains all of whose repositories are gone."""
        for domain in self.domains():
            if domain.roots and not any(root.exists() for root in domain.roots):
                home = self.folder / domain.name
                yield Leftover(
                    home, f"its repository is gone: {', '.join(map(str, domain.roots))}", total_size(home)
                )

    def cleared(self, leftover: Leftover) -> bool:
        """Whether the system let a leftover be cleared."""
        with suppress(OSError):
            if (leftover.path / INDEX_FILE).exists() and leftover.aside is None:
                self.forget(leftover.path.name)
            else:
                remove_leftover(leftover)
        return not leftover.path.exists()

    def domains_for(self, file: Path | None, language: str | None) -> list[tuple[Domain, float]]:
        """The domains for a file with their weights, by the rule of `ngram_builders.registry.assignments`.

        While nothing is rebuilt this costs no more than generation().
        """
        known = self.snapshot()
        return domains_for(known.uses, known.domains, None if file is None else file.resolve(), language)

    def snapshot(self) -> Snapshot:
        """All that the registry knows, read again only when something changed, and then as of one moment."""
        for _ in range(_ATTEMPTS):
            generation = self.generation()
            if self.latest is not None and self.latest.generation == generation:
                return self.latest
            domains = {domain.name: domain for domain in self.domains()}
            self.latest = Snapshot(generation, domains, self.assignments())
        assert self.latest is not None
        return self.latest

    def generation(self) -> Hashable:
        """A value that changes whenever a domain was built, used or removed; costs a stat per domain."""
        marks = [file_stamp(self.folder / _USES)]
        with suppress(OSError):
            marks += sorted(file_stamp(Path(entry.path) / INDEX_FILE) for entry in os.scandir(self.folder))
        return tuple(marks)

    def names(self) -> list[str]:
        """The folders that have an index."""
        try:
            entries = sorted(entry.name for entry in os.scandir(self.folder))
        except OSError:
            return []
        return [name for name in entries if is_name(name) and has_index(self.folder / name)]

    def assignments(self) -> Assignments:
        """What people chose; a record that cannot be read counts as none, see `fault`."""
        try:
            return read_assignments(self.folder / _USES)
        except PARSE_ERRORS:
            return Assignments()

    def fault(self) -> str | None:
        """What is wrong with the folder or the record of uses, or None; without either nothing is."""
        try:
            os.scandir(self.folder).close()
        except FileNotFoundError:
            return None
        except OSError as error:
            found = "a file" if isinstance(error, NotADirectoryError) else (error.strerror or str(error)).lower()
            return (
                f"expected the folder of n-gram tables at {self.folder}, found {found}; "
                "make it a folder that you can read, or choose another with --data-dir"
            )
        try:
            read_assignments(self.folder / _USES)
        except PARSE_ERRORS:
            return (
                f"expected the tables chosen for workspaces in {self.folder / _USES}, found a file that cannot be "
                "read; choose again with: spd-lsp ngrams use NAME --workspace DIR"
            )
        return None

    def write_assignments(self, uses: Assignments) -> None:
        """Replace the record of uses if it changed; one that cannot be read is kept aside."""
        file = self.folder / _USES
        try:
            if read_assignments(file).record() == uses.record():
                return
        except PARSE_ERRORS:
            file.replace(file.with_name(f"{_USES}.bad"))
        write_record(file, uses.record())

    def prepare(self, name: str = "") -> Path:
        """Create the registry's folder, readable by its owner only, and a domain's folder in it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / name).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise self.unwritable(error) from error
        return self.folder / name

    def unwritable(self, error: OSError) -> UserError:
        """The error of a folder that takes no tables."""
        return UserError(
            f"cannot write the n-gram registry {self.folder}: {error.strerror or error}; "
            "make it writable or choose another folder with --data-dir"
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer for a moment; an error of the system names the folder."""
        self.prepare()
        try:
            with self.lock():
                yield
        except OSError as error:
            raise self.unwritable(error) from error

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers out."""
        return hold_lock(self.folder / ".lock")


def file_stamp(file: Path) -> tuple[str, int, int, int]:
    """What tells one state of a file from the next: replacing it changes the inode even within one clock tick."""
    try:
        status = file.stat()
        return (str(file), status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError:
        return (str(file), 0, 0, 0)

"""Which table serves which file: a folder per domain, each with one current table and an index of facts about it.

Comes in: a function that writes a table, or a file to serve. Goes out: domains with weights. Knows no tokens.
A table's name is the digest of its content: it is never overwritten, so a server that has it mapped keeps it.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import platformdirs

from ngram_builders.errors import UserError
from ngram_builders.files import akin
from ngram_builders.layout import replace_file
from ngram_builders.locks import hold, is_alive
from ngram_builders.tables import Table, TableSummary

__all__ = ["WEIGHT", "Domain", "Registry", "check_name"]

WEIGHT = 0.7  # of a personal table among others; measured in 0.5 ... 0.9, flat around this
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
INDEX = "domain.msgpack"
USES = "workspaces.msgpack"


@dataclass(frozen=True, kw_only=True, slots=True)
class Domain:
    """One domain as its index tells it; `fault` says why it cannot serve."""

    name: str
    path: Path  # of the table
    roots: tuple[Path, ...] = ()
    languages: tuple[str, ...] = ()
    tokens: int = 0
    files: int = 0
    ngrams: int = 0
    orders: tuple[int, ...] = ()
    size: int = 0  # bytes
    fingerprint: str = ""
    built: float = 0.0  # seconds since 1970
    weight: float = WEIGHT
    recipe: Mapping[str, Any] = field(default_factory=dict, hash=False)  # what the build was asked, plain values
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the registry knew at one generation."""

    generation: Hashable
    domains: dict[str, Domain]
    uses: dict[str, list[tuple[str, float]]]  # workspace -> domains with weights


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
        weight: float = WEIGHT,
        recipe: Mapping[str, Any] = {},
    ) -> Domain:
        """Have a table written and make it the domain's current one; the old one serves until then.

        recipe is kept as `Domain.recipe`: what the build was asked, in values that msgpack can hold.
        """
        check_weight(weight)
        home = self.home(name)
        scratch = home / f".table.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            summary = write_table(scratch)
            Table.open(scratch).verify()
            table = home / f"table-{digest(scratch)}.ngt"
            with self.lock():
                self.prepare(name)
                place(scratch, table)
                write_record(home / INDEX, describe(table, summary, roots, weight, recipe))
                sweep(home, table)
        except OSError as error:
            raise self.unwritable(error) from error
        finally:
            with suppress(OSError):
                scratch.unlink()
        return self.read(name)

    def home(self, name: str) -> Path:
        """The domain's folder, made if it is missing: its table, its index, and what builds keep beside them."""
        return self.prepare(check_name(name))

    def domains(self) -> list[Domain]:
        """Every domain by name, those with a fault included."""
        return [self.read(name) for name in self.names()]

    def find(self, name: str) -> Domain:
        """The domain of that name."""
        check_name(name)
        if name not in self.names():
            known = ", ".join(self.names()) or "none"
            raise UserError(
                f"expected a known n-gram domain, found {name!r}, known: {known}; run: spd-lsp build-ngrams REPO"
            )
        return self.read(name)

    def remove(self, name: str) -> None:
        """Forget a domain, its tables and its uses."""
        self.find(name)
        home = self.folder / name
        try:
            with self.lock():
                # Without its index a folder is no domain; a table that Windows still maps may stay a while.
                (home / INDEX).unlink(missing_ok=True)
                uses = self.uses()
                left = {w: [use for use in chosen if use[0] != name] for w, chosen in uses.items()}
                if left != uses:
                    self.write_uses(left)
                shutil.rmtree(home, ignore_errors=True)
        except OSError as error:
            raise self.unwritable(error) from error

    def use(self, workspace: Path, chosen: Sequence[tuple[str, float]]) -> None:
        """Serve the files below a folder from these domains, and only these; an empty choice undoes it."""
        for name, weight in chosen:
            self.find(name)
            check_weight(weight)
        try:
            self.prepare()
            with self.lock():
                uses = {**self.uses(), str(workspace.resolve()): [(name, float(w)) for name, w in chosen]}
                self.write_uses(uses)
        except OSError as error:
            raise self.unwritable(error) from error

    def serving(self, file: Path | None, language: str | None) -> list[tuple[Domain, float]]:
        """The domains for a file with their weights: what its workspace uses, else what was built from around it.

        The innermost workspace or root counts first. Domains with a fault or without this language are passed
        over. While nothing is rebuilt this costs no more than generation().
        """
        if file is None:
            return []
        place, known = file.resolve(), self.snapshot()
        around = [Path(workspace) for workspace in known.uses if place.is_relative_to(workspace)]
        if around:
            chosen = known.uses[str(max(around, key=lambda workspace: len(workspace.parts)))]
            named = [(known.domains[name], weight) for name, weight in chosen if name in known.domains]
        else:
            depths = {name: depth(domain, place) for name, domain in known.domains.items()}
            names = sorted((name for name in depths if depths[name]), key=lambda name: (-depths[name], name))
            named = [(known.domains[name], known.domains[name].weight) for name in names]
        return [(domain, weight) for domain, weight in named if serves(domain, language)]

    def snapshot(self) -> Snapshot:
        """All that the registry knows, read again only when something changed."""
        generation = self.generation()
        if self.latest is None or self.latest.generation != generation:
            self.latest = Snapshot(generation, {domain.name: domain for domain in self.domains()}, self.uses())
        return self.latest

    def generation(self) -> Hashable:
        """A value that changes whenever a domain was built, used or removed; costs a stat per domain."""
        marks = [mark(self.folder / USES)]
        with suppress(OSError):
            marks += sorted(mark(Path(entry.path) / INDEX) for entry in os.scandir(self.folder))
        return tuple(marks)

    def names(self) -> list[str]:
        """The folders that have an index."""
        try:
            entries = sorted(entry.name for entry in os.scandir(self.folder))
        except OSError:
            return []
        return [name for name in entries if NAME.fullmatch(name) and (self.folder / name / INDEX).exists()]

    def read(self, name: str) -> Domain:
        """A domain from its index; whatever is wrong with it becomes its fault."""
        home = self.folder / name
        try:
            domain = as_domain(name, home, read_record(home / INDEX))
        except (OSError, LookupError, TypeError, ValueError, AttributeError):
            fault = (
                f"the index of n-gram domain {name} cannot be read; run: spd-lsp build-ngrams REPO --domain {name}"
            )
            return Domain(name=name, path=home / "table.ngt", fault=fault)
        try:
            Table.open(domain.path)
        except UserError as error:
            return replace(domain, fault=str(error))
        return domain

    def uses(self) -> dict[str, list[tuple[str, float]]]:
        """Workspace -> domains with weights; a record that cannot be read counts as none, see `fault`."""
        try:
            return read_uses(self.folder / USES)
        except (OSError, TypeError, ValueError, AttributeError):
            return {}

    def fault(self) -> str | None:
        """What is wrong with the record of uses, or None; without a record nothing is."""
        try:
            read_uses(self.folder / USES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, TypeError, ValueError, AttributeError):
            return (
                f"expected the tables chosen for workspaces in {self.folder / USES}, found a file that cannot be "
                "read; choose again with: spd-lsp ngrams use NAME --workspace DIR"
            )
        return None

    def write_uses(self, uses: dict[str, list[tuple[str, float]]]) -> None:
        """Replace the record of uses, leaving out what uses nothing; one that cannot be read is kept aside."""
        if self.fault():
            (self.folder / USES).replace(self.folder / f"{USES}.bad")
        write_record(
            self.folder / USES, {w: list(map(list, chosen)) for w, chosen in sorted(uses.items()) if chosen}
        )

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

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers out."""
        return hold(self.folder / ".lock")


def check_name(name: str) -> str:
    """The name, if a domain can have it."""
    if not NAME.fullmatch(name) or name.endswith("."):
        raise UserError(
            f"expected a domain name of letters, digits, '.', '_' and '-' (at most 64, no '.' first or last), "
            f"found {name!r}; choose another with --domain"
        )
    return name


def check_weight(weight: float) -> None:
    """Refuse a weight that cannot take part in a mean."""
    if not (math.isfinite(weight) and 0 < weight <= 1):
        raise UserError(f"expected a weight above 0 and up to 1, found {weight}; {WEIGHT} is usual")


def depth(domain: Domain, file: Path) -> int:
    """How deep the innermost of the domain's roots around a file lies; 0 if none is."""
    return max((len(root.parts) for root in domain.roots if file.is_relative_to(root)), default=0)


def serves(domain: Domain, language: str | None) -> bool:
    """Whether a domain is sound and has code like this language's."""
    if domain.fault is not None:
        return False
    return language is None or not domain.languages or not akin(language).isdisjoint(domain.languages)


def digest(file: Path) -> str:
    """The name that stands for a file's content."""
    state = hashlib.blake2b(digest_size=16)
    with file.open("rb") as data:
        while chunk := data.read(1 << 20):
            state.update(chunk)
    return state.hexdigest()


def place(scratch: Path, table: Path) -> None:
    """Rename a new table to its name; if Windows has that very content mapped, it is there already."""
    try:
        scratch.replace(table)
    except PermissionError:
        if not table.exists():
            raise


def sweep(home: Path, current: Path) -> None:
    """Delete a domain's old tables; what cannot be deleted now is deleted next time."""
    for old in home.glob("table-*.ngt"):
        if old != current:
            with suppress(OSError):
                old.unlink()
    for scratch in home.glob(".*.tmp"):
        with suppress(OSError, ValueError, IndexError):
            if not is_alive(int(scratch.name.split(".")[-2].split("-")[0])):
                scratch.unlink()


def describe(
    table: Path, summary: TableSummary, roots: Iterable[Path], weight: float, recipe: Mapping[str, Any]
) -> dict[str, Any]:
    """The index of a domain."""
    return {
        "table": table.name,
        "roots": [str(root.resolve()) for root in roots],
        "languages": sorted(summary.sources),
        "tokens": summary.tokens,
        "files": summary.files,
        "ngrams": summary.ngrams,
        "orders": list(summary.orders),
        "size": summary.size,
        "fingerprint": summary.fingerprint,
        "built": time.time(),
        "weight": weight,
        "recipe": dict(recipe),
    }


def as_domain(name: str, home: Path, facts: dict[str, Any]) -> Domain:
    """An index as a domain; raises what the standard types raise if it is none."""
    table = str(facts["table"])
    if not NAME.fullmatch(table):
        raise ValueError(table)
    return Domain(
        name=name,
        path=home / table,
        roots=tuple(Path(root) for root in facts["roots"]),
        languages=tuple(str(language) for language in facts["languages"]),
        tokens=int(facts["tokens"]),
        files=int(facts["files"]),
        ngrams=int(facts["ngrams"]),
        orders=tuple(int(order) for order in facts["orders"]),
        size=int(facts["size"]),
        fingerprint=str(facts["fingerprint"]),
        built=float(facts["built"]),
        weight=float(facts["weight"]),
        recipe={str(asked): value for asked, value in facts.get("recipe", {}).items()},
    )


def read_record(file: Path) -> dict[str, Any]:
    """A small msgpack file; ValueError if it is none."""
    try:
        return dict(msgpack.unpackb(file.read_bytes()))
    except msgpack.UnpackException as error:
        raise ValueError(file) from error


def read_uses(file: Path) -> dict[str, list[tuple[str, float]]]:
    """The record of uses; TypeError, ValueError or AttributeError if it is none."""
    record = read_record(file)
    return {str(w): [(str(name), float(weight)) for name, weight in chosen] for w, chosen in record.items()}


def write_record(file: Path, record: dict[str, Any]) -> None:
    """Replace a small msgpack file atomically."""
    replace_file(file, [msgpack.packb(record)])


def mark(file: Path) -> tuple[str, int, int, int]:
    """What tells one state of a file from the next: replacing it changes the inode even within one clock tick."""
    try:
        status = file.stat()
        return (str(file), status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError:
        return (str(file), 0, 0, 0)

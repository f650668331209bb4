"""One registered table: its folder, the index in it, and its files. Knows no other table.

A table is a base, of one file or of several partitions that share its contexts among them, and a few segments with
what was edited since: counts of all files add up. A file's name is the digest of its content: it is never
overwritten, so a server that has it mapped keeps it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]

from ngram_builders.errors import UserError
from ngram_builders.registry.origin import is_time
from ngram_builders.scratch import read_chunks, replace_file
from ngram_builders.table.format import TableError, TableSummary
from ngram_builders.table.reader import Table

DEFAULT_WEIGHT = 0.7  # of a personal table among others; measured from 0.5 to 0.9, flat around this
INDEX_FILE = "index.msgpack"
TABLE_PATTERN = "table-*.ngt"
PARSE_ERRORS = (
    OSError,
    LookupError,
    ArithmeticError,
    TypeError,
    ValueError,
    AttributeError,
)  # of a damaged record
_MAX_RECORD_BYTES = 1 << 24  # an index takes about one thousand
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}")
_WINDOWS_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class NgramTable:
    """A registered table, as its index describes it."""

    name: str
    path: Path  # of the table's base
    partitions: tuple[Path, ...] = ()  # the base's other files
    segments: tuple[Path, ...] = ()  # oldest first
    roots: tuple[Path, ...] = ()
    sources: Mapping[str, int] = field(default_factory=dict, hash=False)  # files by language
    tokens: int = 0
    files: int = 0
    ngrams: int = 0
    orders: tuple[int, ...] = ()
    size: int = 0  # bytes of all files
    fingerprint: str = ""  # of the tokenizer
    built: float = 0.0  # seconds since 1970
    weight: float = DEFAULT_WEIGHT
    recipe: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the build's options, plain values
    fault: str | None = None  # why it cannot serve, and what to do

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of its files."""
        return tuple(sorted(self.sources))

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files of the table, the base first."""
        return (self.path, *self.partitions, *self.segments)

    @property
    def layers(self) -> list[str]:
        """The base and the segments by the names under which it is recorded what they were made of."""
        return [file.name for file in (self.path, *self.segments)]


def check_name(name: str) -> str:
    """Return the name if a table can have it."""
    if is_reserved(name):
        raise UserError(f"Windows reserves the name {name!r}; choose another with --name")
    if not is_name(name) or name.endswith("."):
        raise UserError(
            f"invalid table name {name!r}: use up to 64 letters, digits, '.', '_', '@' and '-', no '.' first or "
            "last; choose another with --name"
        )
    return name


def is_reserved(name: str, windows: bool = os.name == "nt") -> bool:
    """Whether Windows has a device of this name in every folder. Example: aux.old"""
    return windows and _WINDOWS_DEVICE.fullmatch(name) is not None


def is_name(name: str) -> bool:
    """Whether a file of this name can neither lie outside its folder nor be hidden in it."""
    return _NAME_PATTERN.fullmatch(name) is not None


def is_weight(weight: float) -> bool:
    """Whether a number, which may be NaN, can weigh a table."""
    return 0 < weight <= 1


def trust(weight: float) -> float:
    """How far what only tables of this total weight know is believed. Example: 0.07 -> 0.1"""
    return min(1.0, weight / DEFAULT_WEIGHT)


def check_weight(weight: float) -> float:
    """Return the weight if a table can have it."""
    if not is_weight(weight):
        raise UserError(f"invalid weight {weight}: it must be above 0 and at most 1; {DEFAULT_WEIGHT} is usual")
    return weight


def table_name(file: Path) -> str:
    """The name of a table with this content."""
    state = hashlib.blake2b(digest_size=16)
    for chunk in read_chunks(file):
        state.update(chunk)
    return f"table-{state.hexdigest()}.ngt"


def move_table(scratch: Path, table: Path) -> None:
    """Rename a new table; if Windows has that very content mapped, it is there already."""
    try:
        scratch.replace(table)
    except PermissionError:
        if not table.exists():
            raise


def make_index(
    files: Sequence[Path],
    summary: TableSummary,
    roots: Iterable[Path],
    weight: float,
    recipe: Mapping[str, Any],
    partitions: Sequence[Path] = (),
) -> dict[str, Any]:
    """The index of a table, from its base and segments, a summary of all, and the base's other files."""
    return {
        "table": files[0].name,
        "partitions": [file.name for file in partitions],
        "segments": [file.name for file in files[1:]],
        "roots": [str(root) for root in resolve_roots(roots)],
        "sources": dict(sorted(summary.sources.items())),
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


def resolve_roots(roots: Iterable[Path]) -> tuple[Path, ...]:
    """The real paths of folders, each once."""
    return tuple(dict.fromkeys(root.resolve() for root in roots))


def has_index(home: Path) -> bool:
    """Whether a folder is a table's. True if that cannot be seen: `read_ngram_table` then reports the fault."""
    try:
        return (home / INDEX_FILE).exists()
    except OSError:
        return True


def read_ngram_table(home: Path) -> NgramTable | None:
    """Read a table's index; None without one, whatever else is wrong becomes the table's fault.

    A build may replace the table after the index was read: then the index is read again.
    """
    table = _read_once(home)
    while table is not None and table.fault:
        again = _read_once(home)
        if again is None or again.paths == table.paths:
            return again
        table = again
    return table


def _read_once(home: Path) -> NgramTable | None:
    """A table as its index and its files are now."""
    try:
        table = parse_index(home, read_record(home / INDEX_FILE))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PARSE_ERRORS:
        fault = f"its index {home / INDEX_FILE} cannot be read; run: spd-lsp build-ngrams REPO --name {home.name}"
        return NgramTable(name=home.name, path=home / "table.ngt", fault=fault)
    try:
        for path in table.paths:
            Table.open(path)
    except TableError as error:
        if "imported" in table.recipe:
            remedy = f"import it again: spd-lsp ngrams import FILE --name {table.name} --replace"
            error = TableError(error.path, error.cause, remedy)
        return replace(table, fault=str(error))
    return table


def parse_index(home: Path, facts: Mapping[str, Any]) -> NgramTable:
    """An index as a table; raises one of PARSE_ERRORS if it is invalid."""
    table = str(facts["table"])
    weight = float(facts["weight"])
    built = float(facts["built"])
    others = [[str(name) for name in facts.get(kind, ())] for kind in ("partitions", "segments")]
    if not (all(map(is_name, [table, *others[0], *others[1]])) and is_weight(weight) and is_time(built)):
        raise ValueError(table, others, weight, built)
    return NgramTable(
        name=home.name,
        path=home / table,
        partitions=tuple(home / name for name in others[0]),
        segments=tuple(home / name for name in others[1]),
        roots=tuple(Path(root) for root in facts["roots"]),
        sources={str(language): int(files) for language, files in facts["sources"].items()},
        tokens=int(facts["tokens"]),
        files=int(facts["files"]),
        ngrams=int(facts["ngrams"]),
        orders=tuple(int(order) for order in facts["orders"]),
        size=int(facts["size"]),
        fingerprint=str(facts["fingerprint"]),
        built=built,
        weight=weight,
        recipe={str(option): value for option, value in facts.get("recipe", {}).items()},
    )


def file_stamp(file: Path) -> tuple[str, int, int, int]:
    """What distinguishes one state of a file from the next: replacing it changes the inode within a clock tick."""
    try:
        status = file.stat()
        return (str(file), status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError:
        return (str(file), 0, 0, 0)


def read_record(file: Path) -> dict[str, Any]:
    """Read a small msgpack file; OSError, TypeError or ValueError if it is none. A pipe is not waited for."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as record:
        data = record.read(_MAX_RECORD_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    try:
        return dict(msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogateescape"))
    except msgpack.UnpackException as error:
        raise ValueError(file) from error


def write_record(file: Path, record: Mapping[str, Any]) -> None:
    """Replace a small msgpack file atomically."""
    replace_file(file, [msgpack.packb(record, unicode_errors="surrogateescape")])  # paths may be of any bytes

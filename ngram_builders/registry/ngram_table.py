"""One registered table: its folder, the index in it, and its files.

A table is one file, or a shard of its texts in each of several: their counts add up. A file's name is the digest
of its content: it is never overwritten, so a server that has it mapped keeps it. What a file's header says is
read from there; the index holds the rest: which files are current, what they were built from, and how. A
repository may have a table for each of several models: each model uses its own, and skips the others without a
message, unless it has none.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.index.mixture import DEFAULT_WEIGHT
from ngram_builders.index.table_file import TableError, read_summary
from ngram_builders.scratch import RECORD_ERRORS, read_chunks, read_record
from ngram_builders.sources.rules.selection import Selection

GUEST_WEIGHT = 0.3  # of a table elsewhere, unless a person gives another
INDEX_FILE = "index.msgpack"
TABLE_PATTERN = "table-*.ngt"
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._@-]{0,62}[A-Za-z0-9_@-])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class NgramTable:
    """A registered table, as its index and the headers of its files describe it."""

    name: str
    paths: tuple[Path, ...]  # of its shards
    roots: tuple[Path, ...] = ()
    sources: Mapping[str, int] = field(default_factory=dict, hash=False)  # files by language
    tokens: int = 0
    files: int = 0
    size: int = 0  # bytes of all files
    fingerprint: str = ""  # of the tokenizer
    built: float = 0.0  # seconds since 1970
    recipe: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the build's options, plain values
    fault: str | None = None  # why it cannot serve, and what to do

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of its files."""
        return tuple(sorted(self.sources))

    @property
    def path(self) -> Path:
        """Its file, or the first of them."""
        return self.paths[0]

    @property
    def is_imported(self) -> bool:
        """Whether it came as a file, without its sources."""
        return "imported" in self.recipe

    @property
    def origin(self) -> Mapping[str, Any]:
        """The `model`, `built` and `sources` in the header of an imported file; empty if it has none."""
        return self.recipe.get("origin") or {}

    @property
    def model(self) -> str:
        """The model that it was built for, "" if that was not recorded."""
        return self.recipe.get("model") or ""


def check_name(name: str) -> str:
    """Return the name if a table can have it."""
    if not is_name(name):
        raise UserError(
            f"invalid table name {name!r}: use up to 64 letters, digits, '.', '_', '@' and '-', no '.' first or "
            "last; choose another with --name"
        )
    return name


def is_name(name: str) -> bool:
    """Whether a text can name a table: its folder lies in the registry's and is not hidden."""
    return _NAME_PATTERN.fullmatch(name) is not None


def trust(weight: float) -> float:
    """The share of its full influence that a table of this weight has, up to 1. Example: 0.07 -> 0.1"""
    return min(1.0, weight / DEFAULT_WEIGHT)


def table_name(file: Path) -> str:
    """The name of a table with this content."""
    state = hashlib.blake2b(digest_size=16)
    for chunk in read_chunks(file):
        state.update(chunk)
    return f"table-{state.hexdigest()}.ngt"


def resolve_roots(roots: Iterable[Path]) -> tuple[Path, ...]:
    """The real paths of folders, each once."""
    return tuple(dict.fromkeys(root.resolve() for root in roots))


def read_ngram_table(home: Path) -> NgramTable | None:
    """Read a table's index; None without one, whatever else is wrong becomes the table's fault."""
    table = _read_once(home)
    while table is not None and table.fault and (again := _read_once(home)) != table:
        table = again  # a build replaced the files after the index was read
    return table


def _read_once(home: Path) -> NgramTable | None:
    """A table as its index and its files are now."""
    try:
        index = read_record(home / INDEX_FILE)
        facts: dict[str, Any] = {
            "name": home.name,
            "paths": tuple(home / name for name in index["tables"]),
            "roots": tuple(map(Path, index["roots"])),
            "built": float(index["built"]),
            "recipe": dict(index["recipe"]),
        }
        if not facts["paths"]:
            raise ValueError("it names no file")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RECORD_ERRORS:
        fault = f"its index {home / INDEX_FILE} cannot be read; run: spd-lsp build-ngrams REPO --name {home.name}"
        return NgramTable(name=home.name, paths=(home / "table.ngt",), fault=fault)
    try:
        shards = [read_summary(path) for path in facts["paths"]]
        return NgramTable(
            **facts,
            sources=dict(sorted(sum((Counter(shard.sources) for shard in shards), Counter[str]()).items())),
            tokens=sum(shard.tokens for shard in shards),
            files=sum(shard.files for shard in shards),
            size=sum(shard.size for shard in shards),
            fingerprint=shards[0].fingerprint,
        )
    except TableError as error:
        if "imported" in facts["recipe"]:
            remedy = f"import it again: spd-lsp ngrams import FILE --name {home.name} --replace"
            error = TableError(error.path, error.cause, remedy)
        return NgramTable(**facts, fault=str(error))


def short_name(model: str) -> str:
    """A model's name without where it is from. Example: `Qwen/Qwen2.5-Coder-0.5B` -> `Qwen2.5-Coder-0.5B`."""
    return Path(model).name or model


def model_label(table: NgramTable) -> str:
    """The model or at least the tokenizer that a table was built for."""
    return short_name(table.model or table.origin.get("model", "")) or f"tokenizer {table.fingerprint}"


def is_for_another_model(table: NgramTable, model: str, fingerprint: str) -> bool:
    """Whether a table was built for another model, with another tokenizer."""
    return table.fingerprint != fingerprint and table.model not in ("", model)


def covering_tables(tables: Iterable[NgramTable], other: NgramTable) -> list[str]:
    """Names of usable tables that together have all sources of another; none if a source is missing.

    An imported table has no sources; any other imported one covers it.
    """
    usable = [table for table in tables if table.fault is None]
    if not other.roots:
        return [table.name for table in usable if not table.roots]
    around = [[one.name for one in usable if any(map(root.is_relative_to, one.roots))] for root in other.roots]
    return list(dict.fromkeys(name for names in around for name in names)) if all(around) else []


def mismatch_message(table: NgramTable, model: str) -> str:
    """Say that a model cannot use a table, and the command that makes one; a table of another model is kept."""
    short = short_name(model)
    built_for = f"an earlier tokenizer of {short}" if table.model == model else model_label(table)
    if built_for == short:  # models of the same name from different places
        built_for, short = table.model, model
    remedy = f"run: spd-lsp ngrams rebuild {table.name} --model {shlex.quote(model)}"
    if table.is_imported:
        remedy = f"import one built with {model}, or run: spd-lsp ngrams remove {table.name}"
    elif table.model not in ("", model) and table.roots:
        roots = " ".join(shlex.quote(str(root)) for root in table.roots)
        options = "".join(f" {option}" for option in Selection.of(table.recipe).as_options())
        remedy = f"run: spd-lsp build-ngrams {roots}{options} --model {shlex.quote(model)}"
    return f"n-gram table {table.name} was built for {built_for}, and {short} has another tokenizer; {remedy}"

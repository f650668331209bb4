"""A domain's table -> one file to give away, and such a file -> a domain. The file is the table itself.

Its header tells the tokenizer, the orders, the counts and the languages; where it was built from stays in the
registry's index and is not given away. Knows no text and no models.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.registry.domains import Domain, check_name
from ngram_builders.registry.registry import Registry
from ngram_builders.table.format import TableSummary, replace_file
from ngram_builders.table.reader import Table

_IMPORTED_WEIGHT = 0.3  # beside 0.7 for a person's own code, as measured for a shared table
_CHUNK = 1 << 20


def export_table(registry: Registry, name: str, file: Path, *, replace: bool = False) -> Path:
    """Copy a domain's table to a file, or into a folder as NAME.ngt, whole or not at all. -> where it is."""
    domain = registry.find(name)
    if domain.fault:
        raise UserError(domain.fault)
    target = file / f"{name}.ngt" if file.is_dir() else file
    if target.exists() and not replace:
        raise UserError(f"expected a file that is not there yet, found {target}; name another or add --replace")
    Table.open(domain.path).verify()
    replace_file(target, _read_chunks(domain.path))
    return target


def _read_chunks(file: Path) -> Iterator[bytes]:
    """A file's bytes."""
    with file.open("rb") as data:
        while chunk := data.read(_CHUNK):
            yield chunk


def import_table(
    registry: Registry,
    file: Path,
    name: str | None = None,
    *,
    fingerprint: str | None = None,
    replace: bool = False,
    recipe: dict[str, Any] | None = None,
) -> Domain:
    """Install a table from a file as a domain, named after the file unless told; every checksum is compared.

    With a fingerprint, a table of another tokenizer is refused; without replace, a domain that exists stays.
    """
    name = check_name(file.stem if name is None else name)
    if not replace:
        _check_new(registry, name)
    _check_table(file, fingerprint)

    def copy(scratch: Path) -> TableSummary:
        replace_file(scratch, _read_chunks(file))
        return Table.open(scratch).summary

    told = {**(recipe or {}), "imported": str(file.resolve())}
    return registry.install(name, copy, weight=_IMPORTED_WEIGHT, recipe=told, overwrite=replace)


def _check_new(registry: Registry, name: str) -> None:
    """Refuse to replace a domain that nobody said should be replaced."""
    if name in registry.names():
        raise UserError(
            f"expected a new n-gram domain, found that {name} exists; "
            "choose another name with --domain, or replace it with --replace"
        )


def _check_table(file: Path, fingerprint: str | None) -> None:
    """Refuse a file that is no sound table, or a table of another tokenizer."""
    try:
        table = Table.open(file)
        table.verify()
    except UserError as error:
        found = str(error).rsplit(";", 1)[0]
        raise UserError(f"{found}; export it again where it was built, with this version of spd-lsp") from error
    if fingerprint is not None and table.summary.fingerprint != fingerprint:
        raise UserError(
            f"expected a table of tokenizer {fingerprint}, found one of {table.summary.fingerprint} in {file}; "
            "name its model with --model, or ask for a table that was built with yours"
        )

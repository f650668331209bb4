"""A domain's table -> one file to give away, and such a file -> a domain. The file is the table without its texts.

Its header has the tokenizer, the orders, the counts and the languages; where it was built from stays in the
registry's index. Knows no text and no models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.registry.domains import Domain, check_name
from ngram_builders.registry.origin import Origin, origin_of, read_origin, to_fields
from ngram_builders.registry.registry import Registry
from ngram_builders.table.format import TableError, TableSummary, replace_file
from ngram_builders.table.reader import Table

_IMPORTED_WEIGHT = 0.3  # beside 0.7 for the user's own code, as measured for a shared table
_CHUNK_BYTES = 1 << 20


def export_table(registry: Registry, name: str, file: Path, *, replace: bool = False) -> Path:
    """Copy a domain's table to a file, or into a folder as NAME.ngt, completely or not at all. -> where it is."""
    domain = registry.find(name)
    if domain.fault:
        raise UserError(domain.fault)
    target = file / f"{name}.ngt" if file.is_dir() else file
    if target.exists() and not replace:
        raise UserError(f"{target} exists; choose another file or add --replace")
    table = Table.open(domain.path)
    table.verify()
    replace_file(target, table.parts_without_texts(to_fields(origin_of(domain))))
    return target


def _read_chunks(file: Path) -> Iterator[bytes]:
    """A file's bytes."""
    with file.open("rb") as data:
        while chunk := data.read(_CHUNK_BYTES):
            yield chunk


def import_table(
    registry: Registry,
    file: Path,
    name: str | None = None,
    *,
    fingerprint: str | None = None,
    replace: bool = False,
    recipe: dict[str, Any] | None = None,
    source: str | None = None,
) -> Domain:
    """Install a table from a file as a domain, by default named after the file; its data is verified.

    With a fingerprint, a table for another tokenizer is refused; without replace, an existing domain stays. source
    is recorded instead of the file.
    """
    name = check_name(file.stem if name is None else name)
    if not replace:
        registry.check_free(name, "choose another name with --domain, or replace it with --replace")
    table = _verify(file, fingerprint)

    def copy(scratch: Path) -> TableSummary:
        replace_file(scratch, _read_chunks(file))
        copied = Table.open(scratch)
        copied.verify()  # the file may have changed since
        return copied.summary

    origin = read_origin(table.file.fields)
    told = {"origin": asdict(origin)} if origin != Origin() else {}
    recorded = {**(recipe or {}), "imported": source or str(file.resolve()), **told}
    return registry.install(name, copy, weight=_IMPORTED_WEIGHT, recipe=recorded, overwrite=replace)


def _verify(file: Path, fingerprint: str | None) -> Table:
    """Open a table, and refuse a file that is no valid table, or a table for another tokenizer."""
    try:
        table = Table.open(file)
        table.verify()
    except TableError as error:
        remedy = "export it again where it was built, with this version of spd-lsp"
        raise TableError(file, error.cause, remedy) from error
    if fingerprint is not None and table.summary.fingerprint != fingerprint:
        cause = f"its tokenizer is {table.summary.fingerprint}, the model's is {fingerprint}"
        raise TableError(file, cause, "name its model with --model, or ask for a table built with yours")
    return table

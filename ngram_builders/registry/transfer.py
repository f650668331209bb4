"""A domain's table -> one file to give away, and such a file -> a domain. The file is the table without its texts.

Its header has the tokenizer, the orders, the counts and the languages; where it was built from stays in the
registry's index. Knows no text and no models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.registry.domains import NgramTable, check_name
from ngram_builders.registry.origin import Origin, origin_of, read_origin, to_fields
from ngram_builders.registry.registry import Registry
from ngram_builders.scratch import replace_file, scratch_path
from ngram_builders.table.format import TableError, TableSummary
from ngram_builders.table.reader import Table, added_runs
from ngram_builders.table.writer import write_table

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
    files = [Table.open(path) for path in domain.paths]
    for one in files:
        one.verify()
    with _joined(files, domain) as table:
        replace_file(target, table.parts_without_texts(to_fields(origin_of(domain))))
    return target


@contextmanager
def _joined(files: Sequence[Table], domain: NgramTable) -> Iterator[Table]:
    """One file with the counts of all of a table's."""
    if len(files) == 1:
        yield files[0]
        return
    base, scratch = files[0].summary, scratch_path(domain.path)
    try:
        write_table(
            scratch,
            added_runs(files),
            fingerprint=base.fingerprint,
            vocab_size=base.vocab_size,
            orders=base.orders,
            min_count=dict(zip(base.orders, base.min_count, strict=True)),
            tokens=domain.tokens,
            files=domain.files,
            sources=domain.sources,
        )
        yield Table.open(scratch)
    finally:
        scratch.unlink(missing_ok=True)


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
) -> NgramTable:
    """Install a table from a file as a domain, by default named after the file; its data is verified.

    With a fingerprint, a table for another tokenizer is refused; without replace, an existing domain stays. source
    is recorded instead of the file.
    """
    name = file.stem if name is None else name
    name = registry.check_new_name(name) if source is None else check_name(name)  # a team has named its own
    if not replace:
        registry.check_free(name, "choose another name with --domain, or replace it with --replace")
    table = _verify(file, fingerprint)

    def copy(scratch: Path) -> TableSummary:
        replace_file(scratch, _read_chunks(file))
        copied = Table.open(scratch)
        copied.verify()  # the file may have changed since
        return copied.summary

    origin = read_origin(table.fields)
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
    if table.columns.is_signed:
        raise TableError(
            file, "it holds only what changed in another table", "export that with: spd-lsp ngrams export"
        )
    if fingerprint is not None and table.summary.fingerprint != fingerprint:
        cause = f"its tokenizer is {table.summary.fingerprint}, the model's is {fingerprint}"
        raise TableError(file, cause, "name its model with --model, or ask for a table built with yours")
    return table

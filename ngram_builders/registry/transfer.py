"""A registered table -> one file to give away, and such a file -> a registered table. It is without its texts.

Its header has the tokenizer, the orders, the counts and the languages; where it was built from stays in the
registry's index. Knows no text and no models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.origin import origin_of, read_origin, to_fields
from ngram_builders.registry.registry import Registry
from ngram_builders.scratch import read_chunks, replace_file, scratch_path
from ngram_builders.table.format import TableError, TableSummary
from ngram_builders.table.reader import Table, added_runs
from ngram_builders.table.writer import write_table

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def export_table(registry: Registry, name: str, file: Path, *, replace: bool = False) -> Path:
    """Copy a table to a file, or into a folder as NAME.ngt, completely or not at all. -> where it is."""
    table = registry.find(name)
    if table.fault:
        raise UserError(table.fault)
    target = file / f"{name}.ngt" if file.is_dir() else file
    if target.exists() and not replace:
        raise UserError(f"{target} exists; choose another file or add --replace")
    files = [Table.open(path) for path in table.paths]
    for one in files:
        one.verify()
    with _joined(files, table) as joined:
        replace_file(target, joined.parts_without_texts(to_fields(origin_of(table))))
    return target


@contextmanager
def _joined(files: Sequence[Table], table: NgramTable) -> Iterator[Table]:
    """One file with the counts of all of a table's."""
    if len(files) == 1:
        yield files[0]
        return
    base = files[0].summary
    scratch = scratch_path(table.path)
    try:
        write_table(
            scratch,
            added_runs(files),
            fingerprint=base.fingerprint,
            vocab_size=base.vocab_size,
            orders=base.orders,
            min_count=dict(zip(base.orders, base.min_count, strict=True)),
            tokens=table.tokens,
            files=table.files,
            sources=table.sources,
        )
        yield Table.open(scratch)
    finally:
        scratch.unlink(missing_ok=True)


def import_table(
    registry: Registry,
    file: Path,
    name: str | None = None,
    *,
    fingerprint: str | None = None,
    replace: bool = False,
    recipe: Mapping[str, Any] = _NOTHING,
) -> NgramTable:
    """Install a table from a file, by default named after the file; its data is verified.

    With a fingerprint, a table for another tokenizer is refused; without replace, an existing table stays.
    """
    name = registry.check_new_name(file.stem if name is None else name)
    if not replace:
        registry.check_free(name, "choose another name with --name, or replace it with --replace")
    try:
        table = Table.open(file)
        if fingerprint in (None, table.summary.fingerprint):
            recorded = {**recipe, "imported": str(file.resolve()), **to_fields(read_origin(table.fields))}
            return install_copy(registry, name, read_chunks(file), recorded, overwrite=replace)
    except TableError as error:
        remedy = "export it again where it was built, with this version of spd-lsp"
        raise TableError(file, error.cause, remedy) from error
    cause = f"its tokenizer is {table.summary.fingerprint}, the model's is {fingerprint}"
    raise TableError(file, cause, "name its model with --model, or ask for a table built with yours")


def install_copy(
    registry: Registry, name: str, data: Iterable[bytes], recipe: Mapping[str, Any], *, overwrite: bool = True
) -> NgramTable:
    """Install a table whose bytes come from others; TableError if it is none that a build writes."""

    def write(scratch: Path) -> TableSummary:
        replace_file(scratch, data)
        table = Table.open(scratch)
        table.verify()
        if table.columns.is_signed:
            raise TableError(scratch, "it holds only what changed in another table")
        return table.summary

    return registry.install(name, write, recipe=recipe, overwrite=overwrite)

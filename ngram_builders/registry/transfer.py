"""A registered table -> a file to give away, and such a file -> a registered table. It holds the code as tokens.

Its header has the tokenizer, the languages, the model and the names of folders; where they lie stays in the
registry's index. Knows no text and no models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.index.table_file import Table, TableError, read_summary, write_table
from ngram_builders.registry.ngram_table import NgramTable, check_name
from ngram_builders.registry.registry import Registry
from ngram_builders.scratch import read_chunks, replace_file


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
    """What people who get a table may know of how it was made: names of folders, without where they lie."""
    if table.is_imported:
        return table.origin
    model = Path(table.model).name if Path(table.model).is_absolute() else table.model
    return {"model": model, "built": table.built, "sources": ", ".join(root.name for root in table.roots)}


def import_table(
    registry: Registry,
    file: Path,
    name: str | None = None,
    *,
    fingerprint: str | None = None,
    replace: bool = False,
    recipe: Mapping[str, Any] = {},
) -> NgramTable:
    """Install a table from a file, by default named after the file; its data is verified.

    With a fingerprint, a table for another tokenizer is refused; without replace, an existing table stays.
    """
    name = check_name(file.stem if name is None else name)

    def write(scratch: Path) -> None:
        replace_file(scratch, read_chunks(file))
        Table.open(scratch).verify()

    try:
        summary = read_summary(file)
        if fingerprint in (None, summary.fingerprint):
            recorded = {**recipe, "imported": str(file.resolve()), "origin": dict(summary.origin)}
            with registry.lock_for_build(name):
                return registry.install(name, [write], recipe=recorded, overwrite=replace)
    except TableError as error:
        remedy = "export it again where it was built, with this version of spd-lsp"
        raise TableError(file, error.cause, remedy) from error
    cause = f"its tokenizer is {summary.fingerprint}, the model's is {fingerprint}"
    raise TableError(file, cause, "name its model with --model, or ask for a table built with yours")

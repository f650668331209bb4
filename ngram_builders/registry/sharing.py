"""Tables of a team: pushed to a folder that all can reach, and pulled from it.

NAME.json says which table is the current one: the digest, the size and the origin of NAME-DIGEST.ngt. That file is
written first and never changed, so whoever pulls meanwhile gets the old table or the new one. What is pulled is a
stranger's file: its digest is compared, and all of it checked as `import_table` does.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.registry.cleanup import total_size
from ngram_builders.registry.ngram_table import NgramTable, check_name, is_name
from ngram_builders.registry.origin import Origin, origin_of, read_origin, to_fields
from ngram_builders.registry.registry import Registry
from ngram_builders.registry.shared_folder import SharedFolder, digest_of, explain_failure, fetch, open_folder
from ngram_builders.registry.transfer import export_table, install_copy
from ngram_builders.scratch import scratch_path
from ngram_builders.table.format import TableError

_FORMAT = 1
_ENDING = ".json"
_MAX_RECORD_BYTES = 1 << 16
_MAX_SIZE = 1 << 50
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SharedTable:
    """What a shared folder says of a table."""

    name: str
    digest: str
    size: int
    origin: Origin

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}-{self.digest[:32]}.ngt"


def push(registry: Registry, name: str, address: str, *, replace: bool = False) -> SharedTable | None:
    """Copy a table to a shared folder; None if it is there already.

    Without replace, one that stays is newer, or not from the same sources and model.
    """
    table = registry.find(name)
    folder = open_folder(address)
    scratch = scratch_path(registry.folder / "push")
    try:
        export_table(registry, name, scratch)
        pushed = SharedTable(name, digest_of(scratch), total_size(scratch), origin_of(table))
        with explain_failure(folder.address):
            before = _read(folder, name)
            if before is not None and before.digest == pushed.digest:
                return None
            if before is not None and not replace and not _is_older(before.origin, pushed.origin):
                raise UserError(
                    f"{folder.address} has another table {name}{_from(before.origin)}; replace it with --replace, "
                    "or build yours under another name with --name"
                )
            folder.put(pushed.file, scratch)
            _write(folder, pushed, scratch)
            if before is not None:
                folder.delete(before.file)
    finally:
        scratch.unlink(missing_ok=True)
    return pushed


def pull(registry: Registry, name: str, address: str, *, replace: bool = False) -> NgramTable | None:
    """Install a table from a shared folder, or its newer version; None if that is installed already.

    Without replace, a table that is not from there stays.
    """
    folder = open_folder(address)
    with explain_failure(folder.address):
        shared = _read(folder, check_name(name))
    if shared is None:
        raise UserError(f"{folder.address} has no table {name}; push it there, or name another")
    known = next((table for table in registry.tables() if table.name == name), None)
    recorded = {"address": folder.address, "digest": shared.digest}
    if known is not None and not known.fault and _pulled(known) == recorded:
        return None
    if known is not None and not replace and _pulled(known).get("address") != folder.address:
        registry.check_free(name, "remove it, or replace it with --replace")
    free = shutil.disk_usage(registry.table_folder(name)).free
    if free < shared.size:
        raise UserError(f"{name} has {shared.size:,} bytes, and only {free:,} are free; make room")
    recipe = {"pulled": recorded, "imported": folder.address, **to_fields(shared.origin)}
    try:
        return install_copy(registry, name, fetch(folder, shared.file, shared.size, shared.digest), recipe)
    except TableError as error:
        remedy = "ask whoever pushed it to push it again, with this version of spd-lsp"
        raise UserError(f"cannot use {shared.file} in {folder.address}: {error.cause}; {remedy}") from error


def list_shared(address: str) -> list[str]:
    """The names of the tables in a shared folder."""
    folder = open_folder(address)
    with explain_failure(folder.address):
        try:
            stems = [name.removesuffix(_ENDING) for name in folder.names() if name.endswith(_ENDING)]
        except FileNotFoundError as error:
            raise UserError(f"there is no folder {folder.address}; check the address, or push a table") from error
    return [stem for stem in stems if is_name(stem)]


def list_pulled(registry: Registry) -> list[tuple[str, str]]:
    """The tables that were pulled, each with its address."""
    pulled = ((table.name, _pulled(table).get("address")) for table in registry.tables())
    return [(name, address) for name, address in pulled if isinstance(address, str)]


def _pulled(table: NgramTable) -> Mapping[str, Any]:
    """Where a table was pulled from, and its digest; nothing if it was not pulled."""
    recorded = table.recipe.get("pulled")
    return recorded if isinstance(recorded, dict) else {}


def _is_older(one: Origin, other: Origin) -> bool:
    """Whether a table is an earlier version of another."""
    same = (one.sources, one.model) == (other.sources, other.model)
    return same and bool(one.sources) and one.built <= other.built


def _from(origin: Origin) -> str:
    """What to say of a table's origin, if that is known."""
    return f", from {origin.sources}" if origin.sources else ""


def _read(folder: SharedFolder, name: str) -> SharedTable | None:
    """What a shared folder says of a table; None if it has none of that name."""
    try:
        with folder.open(f"{name}{_ENDING}") as file:
            data = file.read(_MAX_RECORD_BYTES)
    except FileNotFoundError:
        return None
    try:
        record = json.loads(data)
        digest = record["digest"]
        size = record["size"]
        if (
            record["format"] == _FORMAT
            and type(size) is int
            and 0 < size < _MAX_SIZE
            and _DIGEST.fullmatch(digest)
        ):
            return SharedTable(name, digest, size, read_origin(record))
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise UserError(f"{name}{_ENDING} in {folder.address} cannot be read; update spd-lsp, or push the table again")


def _write(folder: SharedFolder, table: SharedTable, scratch: Path) -> None:
    """Name the current table; its file is there by now."""
    record = {"format": _FORMAT, "digest": table.digest, "size": table.size, **to_fields(table.origin)}
    scratch.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    folder.put(f"{table.name}{_ENDING}", scratch)

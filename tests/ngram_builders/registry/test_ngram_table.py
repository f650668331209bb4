"""A table is a consistent snapshot of its index; an invalid index is a fault, never an error."""

from __future__ import annotations

import os
from pathlib import Path

import msgpack
import pytest

from ngram_builders.registry.assignments import Assignments
from ngram_builders.registry.ngram_table import INDEX_FILE, is_reserved, read_ngram_table
from ngram_builders.registry.registry import Registry
from ngram_builders.table.reader import Table
from tests.ngram_builders.small_tables import writer


def test_a_folder_without_an_index_is_no_table(tmp_path: Path) -> None:
    assert read_ngram_table(tmp_path) is None
    (tmp_path / "file").touch()
    assert read_ngram_table(tmp_path / "file") is None


def test_a_table_replaced_during_a_read_is_not_a_fault(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has the old index, and the build that has just ended has deleted its table."""
    home = registry.install("mine", writer(5)).path.parent
    open_table, builds = Table.open, iter([writer(6), writer(7)])

    def open_late(path: Path) -> Table:
        if (write := next(builds, None)) is not None:
            with monkeypatch.context() as usual:
                usual.setattr(Table, "open", open_table)
                registry.install("mine", write)
        return open_table(path)

    monkeypatch.setattr(Table, "open", open_late)
    table = read_ngram_table(home)
    assert table is not None
    assert (table.fault, table.path.exists()) == (None, True)


def test_a_table_removed_during_a_read_is_none(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    home = registry.install("mine", writer(5)).path.parent
    open_table = Table.open

    def open_late(path: Path) -> Table:
        (home / INDEX_FILE).unlink()
        path.unlink()
        return open_table(path)

    monkeypatch.setattr(Table, "open", open_late)
    assert read_ngram_table(home) is None


@pytest.mark.parametrize(
    "change",
    [
        {"table": "../elsewhere.ngt"},
        {"table": None},
        {"roots": 5},
        {"tokens": float("inf")},
        {"size": "large"},
        {"orders": ["two"]},
        {"recipe": [1]},
        {"weight": None},
        {"weight": float("nan")},  # would make every mixed probability NaN
        {"weight": float("inf")},
        {"weight": -0.5},
        {"built": float("nan")},  # the list of tables could not be printed
        {"built": float("inf")},
    ],
    ids=str,
)
def test_an_index_with_invalid_values_is_a_fault(registry: Registry, change: dict[str, object]) -> None:
    home = registry.install("mine", writer(5)).path.parent
    facts = msgpack.unpackb((home / INDEX_FILE).read_bytes())
    (home / INDEX_FILE).write_bytes(msgpack.packb({**facts, **change}))
    table = read_ngram_table(home)
    assert table is not None
    assert table.fault is not None
    assert "run: spd-lsp " in table.fault


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_in_place_of_a_record_is_not_waited_for(registry: Registry) -> None:
    home = registry.install("mine", writer(5)).path.parent
    for record in (home / INDEX_FILE, registry.folder / "workspaces.msgpack"):
        record.unlink(missing_ok=True)
        os.mkfifo(record)
    (table,) = registry.tables()
    assert "cannot be read" in str(table.fault)
    assert registry.assignments() == Assignments()


@pytest.mark.parametrize("name", ["nul", "CON", "aux.old", "com1", "LPT9.x"])
def test_names_of_windows_devices_are_invalid_on_windows(name: str) -> None:
    assert is_reserved(name, windows=True)
    assert not is_reserved(name, windows=False)
    assert not is_reserved(f"my-{name}", windows=True)

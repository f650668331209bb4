"""One file carries a table from one registry to another, whole or not at all, and says nothing about its owner."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry, export_table, import_table
from tests.ngram_builders.small_tables import probability_after, writer


def exported(registry: Registry, name: str, file: Path, **options: bool) -> Path:
    (path,) = export_table(registry, name, file, **options)
    return path


@pytest.fixture
def file(registry: Registry, repo: Path, tmp_path: Path) -> Path:
    """An exported table."""
    registry.install("mine", [writer(5, 7)], roots=[repo], recipe={"model": "starter"})
    return exported(registry, "mine", tmp_path / "team.ngt")


@pytest.fixture
def other(tmp_path: Path) -> Registry:
    """Another user's registry."""
    return Registry(tmp_path / "other")


def test_an_exported_table_can_be_imported(registry: Registry, other: Registry, file: Path) -> None:
    table = import_table(other, file)
    assert (table.name, table.fault) == ("team", None)
    assert table.path.read_bytes() == file.read_bytes()
    mine = registry.find("mine")
    sections = [list(Table.open(one.path).crcs.items()) for one in (table, mine)]
    assert sections[0] == sections[1]
    assert (table.tokens, table.files, table.languages) == (mine.tokens, mine.files, mine.languages)
    if os.name == "posix":
        assert table.path.stat().st_mode & 0o777 == 0o600


def test_an_exported_file_says_what_it_is_from(
    registry: Registry, other: Registry, repo: Path, tmp_path: Path
) -> None:
    recipe = {"model": "/home/me/models/Tiny"}
    made = registry.install("mine", [writer(5)], roots=[repo], recipe=recipe)
    file = exported(registry, "mine", tmp_path)
    for part in ["/home/me", *repo.parts[1:-1]]:
        assert part.encode() not in file.read_bytes()
    origin = import_table(other, file).origin
    assert origin == {"model": "Tiny", "built": made.built, "sources": "repo"}
    again = import_table(registry, exported(other, "mine", tmp_path / "again.ngt"), "again")
    assert again.origin == origin
    assert exported(registry, "mine", tmp_path, replace=True).read_bytes() == again.path.read_bytes()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda data: data[:-64], "bytes instead of"),
        (lambda data: data[:-192] + bytes([data[-192] ^ 1]) + data[-191:], "damaged data"),
        (lambda data: b"PK" + data[2:], "not an n-gram table"),
    ],
    ids=["cut", "data", "foreign"],
)
def test_a_damaged_file_is_refused_and_nothing_changes(
    other: Registry, file: Path, harm: Callable[[bytes], bytes], message: str
) -> None:
    old = import_table(other, file)
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(UserError, match=f"{message}.*; export it again where it was built"):
        import_table(other, file, replace=True)
    assert other.find("team") == old
    with pytest.raises(UserError, match=message):
        import_table(other, file, "new")
    assert [table.name for table in other.tables()] == ["team"]


def test_missing_or_badly_named_files_are_reported(other: Registry, file: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        import_table(other, file.with_name("none.ngt"))
    bad = file.rename(file.with_name("my team.ngt"))
    with pytest.raises(UserError, match=r"invalid table name 'my team'.*; choose another with --name"):
        import_table(other, bad)
    with pytest.raises(UserError, match="cannot write"):
        export_table(other, import_table(other, bad, "team").name, file.parent / "no" / "such" / "folder")


def test_a_table_of_several_shards_becomes_as_many_files(
    registry: Registry, other: Registry, tmp_path: Path
) -> None:
    made = registry.install("mine", [writer(5, 7), writer(5, 8)])
    files = export_table(registry, "mine", tmp_path)
    assert [file.name for file in files] == ["mine.ngt", "mine-2.ngt"]
    assert [probability_after(Table.open(import_table(other, file).path), 5, 8) for file in files] == [0, 1]
    assert sum(table.tokens for table in other.tables()) == made.tokens
    files[0].unlink()
    with pytest.raises(UserError, match=r"mine-2\.ngt exists"):
        export_table(registry, "mine", tmp_path)
    assert not files[0].exists()

"""A table is replaced whole or not at all, a running reader keeps its table, and a broken table is listed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.index.table_file import Table
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.registry import FolderChoice, Registry
from tests.ngram_builders.small_tables import names, probability_after, writer


def test_reading_creates_nothing(registry: Registry) -> None:
    assert registry.tables() == []
    assert registry.tables_for(Path("/x/a.py"), "python") == []
    registry.generation()
    with pytest.raises(UserError, match=r"named 'mine' \(known: none yet\); run: spd-lsp build-ngrams"):
        registry.find("mine")
    assert not registry.folder.parent.exists()


def test_an_installed_table_is_found(registry: Registry, repo: Path) -> None:
    installed = registry.install("mine", [writer(5, 7)], roots=[repo])
    assert registry.find("mine") == installed
    assert registry.tables() == [installed]
    assert installed.fault is None
    assert (installed.name, installed.roots) == ("mine", (repo.resolve(),))
    assert (installed.tokens, installed.files, installed.languages) == (4, 1, ("python",))
    assert installed.size == installed.path.stat().st_size
    assert probability_after(Table.open(installed.path, "a1b2"), 5, 7) == 1


@pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX's")
def test_tables_are_private(registry: Registry) -> None:
    path = registry.install("mine", [writer(5)]).path
    assert [p.stat().st_mode & 0o777 for p in (registry.folder, path.parent, path)] == [0o700, 0o700, 0o600]


def test_a_rebuild_replaces_the_table_and_a_reader_keeps_the_old_counts(registry: Registry) -> None:
    old = registry.install("mine", [writer(5, 7)])
    reader, before = Table.open(old.path), registry.generation()
    new = registry.install("mine", [writer(5, 8)])
    assert registry.generation() != before
    assert (probability_after(reader, 5, 7), probability_after(reader, 5, 8)) == (1, 0)
    assert probability_after(Table.open(registry.find("mine").path), 5, 8) == 1
    if os.name == "posix":
        assert [path.name for path in new.path.parent.glob("*.ngt")] == [new.path.name]


def test_a_failed_rebuild_keeps_the_old_table(registry: Registry) -> None:
    old = registry.install("mine", [writer(5, 7)])
    before = registry.generation()

    def fail(path: Path) -> None:
        path.write_bytes(b"half a table")
        raise UserError("no space")

    with pytest.raises(UserError, match="no space"):
        registry.install("mine", [writer(5, 7), fail])
    assert registry.find("mine") == old
    assert registry.generation() == before
    assert sorted(p.name for p in old.path.parent.iterdir()) == sorted(["index.msgpack", old.path.name])


@pytest.mark.parametrize("name", ["", "..", "a\\b", "../x", ".hidden", "a b", "x" * 65, "ä", "a\n", "C:x"])
def test_names_that_could_leave_the_folder_are_refused(registry: Registry, name: str) -> None:
    for call in (lambda: registry.install(name, [writer(5)]), lambda: registry.find(name)):
        with pytest.raises(UserError, match="invalid table name"):
            call()
    with pytest.raises(UserError):
        registry.remove(name)
    assert not registry.folder.exists()


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda d: (d.path.parent / "index.msgpack").write_bytes(b"\xc1 noise"), "cannot be read"),
        (lambda d: (d.path.parent / "index.msgpack").write_bytes(b""), "cannot be read"),
        (lambda d: (d.path.parent / "index.msgpack").write_bytes(b"\x80"), "cannot be read"),
        (lambda d: d.path.unlink(), "no such file"),
        (lambda d: d.path.write_bytes(d.path.read_bytes()[:-64]), "bytes instead of"),
        (lambda d: d.path.write_bytes(b"something else entirely"), "not an n-gram table"),
    ],
    ids=["noise", "nothing", "no facts", "table gone", "table cut", "table foreign"],
)
def test_a_broken_table_is_listed_with_its_fault_and_not_used(
    registry: Registry, repo: Path, harm: Callable[[NgramTable], object], fault: str
) -> None:
    harm(registry.install("bad", [writer(5)], roots=[repo]))
    good = registry.install("good", [writer(6)], roots=[repo])
    bad = registry.tables()[0]
    assert bad.name == "bad"
    assert bad.fault is not None
    assert fault in bad.fault
    assert "run: spd-lsp " in bad.fault
    assert registry.find("bad").fault == bad.fault
    assert registry.tables_for(repo / "a.py", "python") == [(good, 0.7)]
    assert registry.install("bad", [writer(5)], roots=[repo]).fault is None
    registry.remove("bad")
    assert registry.tables() == [good]


def test_a_table_that_is_being_built_is_not_removed(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its build would make it a second time."""
    monkeypatch.setattr("ngram_builders.registry.registry._BUSY_TIMEOUT", 0)
    registry.install("mine", [writer(5)])
    with registry.lock_for_build("mine"):
        with pytest.raises(UserError, match="mine is being built; try again when that is done"):
            registry.remove("mine")
        registry.install("mine", [writer(6)])
    assert [table.name for table in registry.tables()] == ["mine"]
    registry.remove("mine")
    assert registry.tables() == []


def test_removing_a_table_removes_its_assignments(registry: Registry, repo: Path) -> None:
    home = registry.install("mine", [writer(5)], roots=[repo]).path.parent
    registry.install("other", [writer(6)])
    registry.assign_workspace(repo, [("mine", 0.5), ("other", 0.5)])
    registry.remove("mine")
    assert not home.exists()
    assert [table.name for table in registry.tables()] == ["other"]
    assert names(registry.tables_for(repo / "a.py", None)) == [("other", 0.5)]
    registry.install("mine", [writer(5)], roots=[repo])
    assert names(registry.tables_for(repo / "a.py", None)) == [("other", 0.5)]
    with pytest.raises(UserError, match="named 'gone'"):
        registry.remove("gone")


def test_the_generation_changes_with_every_change_and_only_then(registry: Registry, repo: Path) -> None:
    seen = [registry.generation()]
    for change in (
        lambda: registry.install("mine", [writer(5)], roots=[repo]),
        lambda: registry.install("mine", [writer(5)], roots=[repo]),
        lambda: registry.install("other", [writer(6)]),
        lambda: registry.assign_workspace(repo, [("mine", 0.5)]),
        lambda: registry.assign_workspace(repo, [("mine", 0.6)]),
        lambda: registry.remove("mine"),
        lambda: registry.remove("other"),
    ):
        change()
        seen.append(registry.generation())
        registry.tables()
        registry.tables_for(repo / "a.py", None)
        (registry.folder / f"usage-{len(seen)}.json").write_text(
            "{}", encoding="utf-8"
        )  # another file of the server
        assert registry.generation() == seen[-1]
    assert len(set(seen[:-1])) == len(seen) - 1


def test_a_build_deletes_what_earlier_ones_left(registry: Registry) -> None:
    table = registry.install("mine", [writer(5)])
    half = table.path.with_name(".table.0a1b.tmp")
    half.write_bytes(b"half")
    registry.install("mine", [writer(6)])
    assert half.exists(), "a build may be writing it"
    assert not table.path.exists()
    with registry.lock_for_build("mine"):
        assert not half.exists()


def test_what_was_decided_about_folders_is_remembered_and_a_damaged_record_replaced(registry: Registry) -> None:
    odd, shop = Path("/code/caf\udce9"), Path("/code/shop")
    registry.choose_folder(odd, FolderChoice.INDEXED)
    registry.choose_folder(shop, FolderChoice.INDEXED)
    registry.choose_folder(odd, FolderChoice.EXCLUDED)
    assert registry.folder_choices() == {odd: FolderChoice.EXCLUDED, shop: FolderChoice.INDEXED}
    record = registry.folder / "folders.msgpack"
    for damage in (b"", b"\xc1", b"\x90", record.read_bytes()[:-3], b"\x81\xa1a\xa1b"):
        record.write_bytes(damage)
        assert registry.folder_choices() == {}
    registry.choose_folder(shop, FolderChoice.INDEXED)
    assert registry.folder_choices() == {shop: FolderChoice.INDEXED}

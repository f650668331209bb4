"""Pruning deletes what nobody needs and nothing else; a dry run only reports."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import names, writer

TWO_DAYS = 2 * 86400


def age(*paths: Path) -> None:
    """Set the files' times to two days ago."""
    for path in paths:
        os.utime(path, (time.time() - TWO_DAYS, time.time() - TWO_DAYS))


def prune_reasons(registry: Registry, **options: bool) -> dict[str, str]:
    """Prune and return the reasons by path below the registry's folder."""
    pruned, failed = registry.prune(**options)
    assert failed == []
    return {str(leftover.path.relative_to(registry.folder)): leftover.reason for leftover in pruned}


def everything(registry: Registry) -> set[Path]:
    return set(registry.folder.rglob("*"))


def test_a_registry_without_leftovers_loses_nothing(registry: Registry, repo: Path) -> None:
    assert registry.prune() == ([], [])
    assert not registry.folder.exists()
    home = registry.install("mine", writer(5), roots=[repo]).path.parent
    (home / "tokens.sqlite").write_bytes(b"ids")
    registry.assign_workspace(repo, [("mine", 0.5)])
    before, generation = everything(registry), registry.generation()
    age(*before)
    generation = registry.generation()
    assert registry.prune(gone=True) == ([], [])
    assert (everything(registry), registry.generation()) == (before, generation)


def test_unfinished_files_are_pruned_once_nobody_writes_to_them(registry: Registry) -> None:
    home = registry.install("mine", writer(5)).path.parent
    for folder in (home, registry.folder):
        for name in (".table.0a1b.tmp", ".table.2c3d.tmp"):
            (folder / name).write_bytes(b"half")
        age(folder / ".table.0a1b.tmp")
    assert set(prune_reasons(registry, dry_run=True)) == {".table.0a1b.tmp", "mine/.table.0a1b.tmp"}
    registry.install("mine", writer(6))
    assert [file.name for file in home.glob(".*")] == [".table.2c3d.tmp"], "a build cleans up, too"
    pruned, _ = registry.prune()
    assert [leftover.size for leftover in pruned] == [4]
    assert registry.prune() == ([], [])


def test_tables_that_no_index_names_are_pruned(registry: Registry) -> None:
    table = registry.install("mine", writer(5))
    old = table.path.with_name("table-0123.ngt")
    old.write_bytes(b"12345")
    assert prune_reasons(registry) == {"mine/table-0123.ngt": "a table that no index names"}
    assert not old.exists()
    assert registry.find("mine") == table


def test_an_abandoned_token_cache_is_pruned_and_that_of_a_running_build_kept(registry: Registry) -> None:
    for name in ("under-way", "busy", "forgotten"):
        (registry.table_folder(name) / "tokens.sqlite").write_bytes(b"ids")
        (registry.folder / name / "tokens.sqlite-wal").write_bytes(b"more")
    with registry.lock_for_build("busy"):
        for name in ("busy", "forgotten"):
            age(*(registry.folder / name).iterdir(), registry.folder / name)
        assert set(prune_reasons(registry)) == {"forgotten"}
    assert set(prune_reasons(registry)) == {"busy"}
    assert (registry.folder / "under-way" / "tokens.sqlite").exists()


def test_an_abandoned_count_in_tasks_is_pruned(registry: Registry) -> None:
    home = registry.install("mine", writer(5)).path.parent
    for name in ("new", "old"):
        (home / f"{name}.counting" / "counts").mkdir(parents=True)
        (home / f"{name}.counting" / "counts" / "1").write_bytes(b"run")
    tasks = [*(home / "old.counting").rglob("*"), home / "old.counting"]
    age(*tasks)
    assert registry.prune() == ([], [])
    for path in tasks:
        os.utime(path, (1, 1))  # longer than jobs wait in queues
    assert set(prune_reasons(registry)) == {"mine/old.counting"}
    assert (home / "new.counting" / "counts" / "1").exists()


def test_a_table_with_an_unreadable_index_loses_nothing(registry: Registry) -> None:
    home = registry.install("bad", writer(5)).path.parent
    (home / "index.msgpack").write_bytes(b"\xc1")
    age(*everything(registry))
    assert registry.prune(gone=True) == ([], [])


def test_ngram_table_without_repositories_are_pruned_only_on_request(registry: Registry, repo: Path) -> None:
    registry.install("whole", writer(5), roots=[repo])
    registry.install("half", writer(6), roots=[repo, repo / "inner"])
    registry.install("team", writer(7))
    registry.assign_workspace(repo / "inner", [("team", 0.3)])
    registry.assign_workspace(repo.parent, [("whole", 0.3), ("team", 0.3)])
    (repo / "inner").rmdir()
    assert prune_reasons(registry, gone=True) == {}
    assert list(registry.assignments().workspaces) == [str(repo.parent)]
    repo.rmdir()
    assert prune_reasons(registry) == {}
    assert set(prune_reasons(registry, gone=True, dry_run=True)) == {"whole", "half"}
    assert f"its repository is gone: {repo}" in prune_reasons(registry, gone=True)["whole"]
    assert [table.name for table in registry.tables()] == ["team"]
    assert names(registry.tables_for(repo.parent / "x.py", None)) == [("team", 0.3)]


def test_assignments_of_deleted_tables_are_pruned(registry: Registry, repo: Path) -> None:
    registry.install("mine", writer(5), roots=[repo])
    registry.install("team", writer(6))
    registry.assign_workspace(repo, [("team", 0.3)])
    (registry.folder / "team" / "index.msgpack").unlink()
    registry.prune(dry_run=True)
    assert registry.assignments().names() == {"team"}
    registry.prune()
    assert registry.assignments().names() == set()
    assert names(registry.tables_for(repo / "x.py", None)) == [("mine", 0.7)]


def test_files_that_cannot_be_deleted_are_reported(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows does not delete tables that a server has mapped."""
    home = registry.install("mine", writer(5)).path.parent
    (home / "table-0123.ngt").write_bytes(b"12345")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    pruned, failed = registry.prune()
    assert (pruned, [leftover.path.name for leftover in failed]) == ([], ["table-0123.ngt"])

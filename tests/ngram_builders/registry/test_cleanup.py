"""Pruning takes what nobody needs and nothing else; what cannot be read is kept aside; a dry run only tells."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import names, writer

TWO_DAYS = 2 * 86400


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def age(*paths: Path) -> None:
    """Make files look as if nobody had touched them for days."""
    for path in paths:
        os.utime(path, (time.time() - TWO_DAYS, time.time() - TWO_DAYS))


def told(registry: Registry, **options: bool) -> dict[str, str]:
    """What a prune did, by path below the registry's folder."""
    done, failed = registry.prune(**options)
    assert failed == []
    return {str(leftover.path.relative_to(registry.folder)): leftover.reason for leftover in done}


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


@pytest.mark.skipif(os.name != "posix", reason="only POSIX tells whether a process lives")
def test_unfinished_files_of_dead_processes_go_and_those_of_living_ones_stay(
    registry: Registry, dead: int
) -> None:
    home = registry.install("mine", writer(5)).path.parent
    for folder in (home, registry.folder):
        (folder / f".table.{dead}-abc.tmp").write_bytes(b"half")
        (folder / f".table.{os.getpid()}-abc.tmp").write_bytes(b"half")
    expected = {f".table.{dead}-abc.tmp", f"mine/.table.{dead}-abc.tmp"}
    assert set(told(registry, dry_run=True)) == expected
    done, _ = registry.prune()
    assert [leftover.size for leftover in done] == [4, 4]
    assert (home / f".table.{os.getpid()}-abc.tmp").exists()
    assert registry.prune() == ([], [])
    age(home / f".table.{os.getpid()}-abc.tmp")
    assert set(told(registry)) == {f"mine/.table.{os.getpid()}-abc.tmp"}


def test_tables_that_no_index_names_go(registry: Registry) -> None:
    domain = registry.install("mine", writer(5))
    old = domain.path.with_name("table-0123.ngt")
    old.write_bytes(b"12345")
    assert told(registry) == {"mine/table-0123.ngt": "a table that no index names"}
    assert not old.exists()
    assert registry.find("mine") == domain


def test_a_forgotten_token_cache_goes_and_that_of_a_build_under_way_stays(registry: Registry) -> None:
    for name in ("under-way", "busy", "forgotten"):
        (registry.domain_folder(name) / "tokens.sqlite").write_bytes(b"ids")
        (registry.folder / name / "tokens.sqlite-wal").write_bytes(b"more")
    with registry.lock_for_build("busy"):
        for name in ("busy", "forgotten"):
            age(*(registry.folder / name).iterdir(), registry.folder / name)
        assert set(told(registry)) == {"forgotten"}
    assert set(told(registry)) == {"busy"}
    assert (registry.folder / "under-way" / "tokens.sqlite").exists()


def test_a_count_in_tasks_goes_once_nobody_goes_on_with_it(registry: Registry) -> None:
    home = registry.install("mine", writer(5)).path.parent
    for name in ("new", "old"):
        (home / f"{name}.counting" / "counts").mkdir(parents=True)
        (home / f"{name}.counting" / "counts" / "1").write_bytes(b"run")
    age(*(home / "old.counting").rglob("*"), home / "old.counting")
    assert set(told(registry)) == {"mine/old.counting"}
    assert (home / "new.counting" / "counts" / "1").exists()


def test_a_domain_whose_index_cannot_be_read_is_moved_aside_with_all_it_has(registry: Registry) -> None:
    home = registry.install("bad", writer(5)).path.parent
    good = registry.install("good", writer(6))
    (home / "tokens.sqlite").write_bytes(b"ids")
    (home / "domain.msgpack").write_bytes(b"\xc1")
    held = {path.name: path.read_bytes() for path in home.iterdir()}
    (found,), _ = registry.prune(dry_run=True)
    assert home.exists()
    (moved,), failed = registry.prune()
    assert (moved.reason, failed) == ("its index cannot be read", [])
    assert moved.aside is not None
    assert moved.size == found.size == sum(map(len, held.values()))
    assert {path.name: path.read_bytes() for path in moved.aside.iterdir()} == held
    assert registry.domains() == [good]
    assert registry.prune() == ([], [])
    assert moved.aside.exists()


def test_a_domain_that_a_build_is_about_to_mend_stays(registry: Registry) -> None:
    home = registry.install("bad", writer(5)).path.parent
    (home / "domain.msgpack").write_bytes(b"\xc1")
    with registry.lock_for_build("bad"):
        assert registry.prune() == ([], [])
    (home / f".table.{os.getpid()}-abc.tmp").touch()
    assert registry.prune() == ([], [])


def test_domains_without_their_repositories_go_only_when_asked(registry: Registry, repo: Path) -> None:
    registry.install("whole", writer(5), roots=[repo])
    registry.install("half", writer(6), roots=[repo, repo / "inner"])
    registry.install("team", writer(7))
    registry.assign_workspace(repo / "inner", [("team", 0.3)])
    registry.assign_workspace(repo.parent, [("whole", 0.3), ("team", 0.3)])
    (repo / "inner").rmdir()
    assert told(registry, gone=True) == {}
    assert list(registry.assignments().workspaces) == [str(repo.parent)]
    repo.rmdir()
    assert told(registry) == {}
    assert set(told(registry, gone=True, dry_run=True)) == {"whole", "half"}
    assert f"its repository is gone: {repo}" in told(registry, gone=True)["whole"]
    assert [domain.name for domain in registry.domains()] == ["team"]
    assert names(registry.domains_for(repo.parent / "x.py", None)) == [("team", 0.3)]


def test_choices_of_domains_that_are_gone_are_forgotten(registry: Registry, repo: Path) -> None:
    registry.install("mine", writer(5), roots=[repo])
    registry.install("team", writer(6))
    registry.assign_workspace(repo, [("team", 0.3)])
    (registry.folder / "team" / "domain.msgpack").unlink()
    registry.prune(dry_run=True)
    assert registry.assignments().names() == {"team"}
    registry.prune()
    assert registry.assignments().names() == set()
    assert names(registry.domains_for(repo / "x.py", None)) == [("mine", 0.7)]


def test_what_the_system_does_not_let_go_is_told(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows keeps tables that a server has mapped."""
    home = registry.install("mine", writer(5)).path.parent
    (home / "table-0123.ngt").write_bytes(b"12345")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    done, failed = registry.prune()
    assert (done, [leftover.path.name for leftover in failed]) == ([], ["table-0123.ngt"])

"""The files of a table: few that changed are counted as they are, and more make a rebuild due."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from spd_lsp.ngrams.serving_tables import OpenFiles
from spd_lsp.ngrams.table_files import MAX_CHANGED_FILES, TableFiles
from tests.ngrams.test_open_files import Snapshot, held, open_files_over, rescan, settle, show, table_of

FILES = 60


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    paths = [folder / f"n{number:03}.py" for number in range(FILES)]
    for path in paths:
        path.write_text(f"def {path.stem}(x):\n    return x\n")
    return paths


@pytest.fixture
def files(paths: list[Path]) -> OpenFiles:
    files = open_files_over((table_of(paths[0].parent), Snapshot(paths)))
    settle(files)
    return files


@pytest.fixture
def table(files: OpenFiles) -> TableFiles:
    return files.tables["mine"]


def change(paths: list[Path]) -> None:
    for path in paths:
        path.write_text(f"def {path.stem}_anew(x):\n    return -x\n")


def test_files_that_are_said_to_have_changed_are_read_between_requests(
    files: OpenFiles, table: TableFiles, paths: list[Path]
):
    change(paths[:3])
    revision = files.revision
    files.update_files([*paths[:3], paths[0].with_name("notes.txt")])
    assert not table.changed
    settle(files)
    assert table.changed.keys() == set(map(str, paths[:3])) and files.revision > revision
    assert not table.is_outdated and held(files)


def test_after_many_changes_a_rebuild_is_due_and_what_is_left_waits_for_it(
    files: OpenFiles, table: TableFiles, paths: list[Path]
):
    change(paths)
    files.update_files(paths)
    settle(files)
    assert table.is_outdated
    assert len(table.changed) == MAX_CHANGED_FILES + 1


def test_files_that_were_only_touched_and_those_changed_back_make_no_rebuild_due(
    files: OpenFiles, table: TableFiles, paths: list[Path]
):
    for path in paths:
        os.utime(path, ns=(1, 1))
    rescan(files)
    assert not table.changed and not table.is_outdated
    before = paths[0].read_text()
    change(paths[:1])
    rescan(files)
    assert table.changed and held(files)
    paths[0].write_text(before)
    rescan(files)
    assert not table.changed and not held(files)


def test_scans_and_rebuilds_wait_for_git(files: OpenFiles, table: TableFiles, paths: list[Path]):
    change(paths)
    rescan(files)
    assert table.is_outdated
    lock = paths[0].parent / ".git" / "index.lock"
    lock.touch()
    assert not table.is_outdated
    table.scan_soon()
    assert not table.is_scan_due
    os.utime(lock, (time.time() - 100, time.time() - 100))  # git was killed
    assert table.is_outdated and table.is_scan_due


def test_a_checkout_is_looked_for_again_soon_and_other_changes_after_a_while(table: TableFiles, paths: list[Path]):
    """A client without file events notices a checkout within two seconds: the idle worker looks once a second."""
    assert not table.is_scan_due
    (paths[0].parent / ".git" / "index").write_text("another")
    table._scan_seconds = 0.0
    assert table.is_scan_due


def test_a_scan_pauses(files: OpenFiles, table: TableFiles, paths: list[Path]):
    change(paths[:9])
    table.scan_soon()
    pauses = 0
    while files.run_idle_work(0.0):
        pauses += 1
    assert pauses >= 9


def test_what_a_build_would_leave_out_is_not_counted(files: OpenFiles, table: TableFiles, paths: list[Path]):
    made = paths[0].with_name("made.py")
    made.write_text("# Generated from A.g4 by ANTLR 4.13\nx = 1\n")
    for look in (lambda: files.update_files([made]), table.scan_soon):
        look()
        settle(files)
        assert not table.changed and not held(files)
    assert str(made) in table.states, "so the next scan does not read it again"


def test_a_new_file_is_counted_beside_its_table_and_with_it_once_it_is_saved(files: OpenFiles, paths: list[Path]):
    new, text = paths[0].with_name("new.py"), "new = 1\n"
    show(files, new, text)
    assert files.arrays("python") and not held(files)
    new.write_text(text)
    show(files, new, text, saved=True)
    assert held(files) and not files.arrays("python")

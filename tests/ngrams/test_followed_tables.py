"""When a table's files are looked at, in which order they are counted, and when a rebuild is due."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from spd_lsp.ngrams import followed_tables, live_index
from spd_lsp.ngrams.file_sync import TableSync
from spd_lsp.ngrams.live_index import LiveIndex
from tests.ngrams.test_live_index import Snapshot, live_over, rescan, settle, show, table_of

FILES = 120


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    files = [folder / f"n{number:03}.py" for number in range(FILES)]
    for file in files:
        file.write_text(f"def {file.stem}(x):\n    return x\n")
    return files


@pytest.fixture
def live(files: list[Path]) -> LiveIndex:
    live = live_over((table_of(files[0].parent), Snapshot(files)))
    settle(live)
    return live


def change(files: list[Path]) -> None:
    for file in files:
        file.write_text(f"def {file.stem}_anew(x):\n    return -x\n")


def counted(live: LiveIndex) -> dict[str, Any]:
    sync = live.synced["mine"]
    return {path for path, key in sync.ledger.keys.items() if sync.built_from.get(path) != key}  # type: ignore


def test_what_open_documents_import_is_counted_first(live: LiveIndex, files: list[Path]):
    folder = files[0].parent
    show(live, folder / "asked.py", "import n117\nfrom n118 import x\nimport appeared\n")
    change(files)
    (folder / "appeared.py").write_text("y = 1\n")
    live.update_files([*files, folder / "appeared.py"])
    imported = {str(folder / name) for name in ("n117.py", "n118.py", "appeared.py")}
    while len(now := counted(live)) < 3:
        assert live.run_idle_work(0.0)
    assert imported == {*now}


def test_many_reported_files_are_looked_at_together(
    live: LiveIndex, files: list[Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(live_index, "_MAX_FILES_APART", 30)
    listed = []
    real = TableSync.list_changes
    monkeypatch.setattr(TableSync, "list_changes", lambda sync: (listed.append(1), real(sync))[1])
    change(files)
    for start in range(0, FILES, 40):  # as editors report them
        live.update_files(files[start : start + 40])
    settle(live)
    assert counted(live) == set(map(str, files)) and len(listed) == 1


def test_what_is_reported_while_it_is_counted_is_counted_too(live: LiveIndex, files: list[Path]):
    change(files[:110])
    live.update_files(files)
    while len(counted(live)) < 60:
        assert live.run_idle_work(0.0)
    change(files[110:])
    live.update_files(files)
    settle(live)
    assert counted(live) == set(map(str, files))


def test_files_that_were_only_touched_and_those_changed_back_make_no_rebuild_due(
    live: LiveIndex, files: list[Path]
):
    sync = live.synced["mine"]
    for file in files:
        os.utime(file, ns=(1, 1))
    rescan(live)
    assert not sync.changed and not sync.is_outdated
    before = [file.read_text() for file in files]
    change(files)
    rescan(live)
    assert len(sync.changed) == FILES and live.tables.outdated()
    for file, text in zip(files, before, strict=True):
        file.write_text(text)
    rescan(live)
    assert not sync.changed and not sync.is_outdated


def test_scans_and_rebuilds_wait_for_git(live: LiveIndex, files: list[Path]):
    """What it has changed so far would take the room of what it has not."""
    change(files)
    rescan(live)
    assert live.tables.outdated()
    lock = files[0].parent / ".git" / "index.lock"
    lock.touch()
    assert not live.tables.outdated()
    (files[0].parent / "new.py").write_text("new = 1\n")
    rescan(live)
    assert str(files[0].parent / "new.py") not in counted(live)
    os.utime(lock, (time.time() - 100, time.time() - 100))  # git was killed
    rescan(live)
    assert live.tables.outdated() and str(files[0].parent / "new.py") in counted(live)


def test_what_is_imported_is_counted_though_other_files_have_filled_their_room(live: LiveIndex, files: list[Path]):
    """As where git takes longer to change files than a scan to count them."""
    sync = live.synced["mine"]
    sync.ledger.overlay.max_ngrams = 1_000
    show(live, files[0].parent / "asked.py", "import n117\n")
    change(files[:100])
    rescan(live)
    assert sync.ledger.overlay.full
    change(files)
    rescan(live)
    assert str(files[117]) in counted(live) and str(files[116]) not in counted(live)


def test_a_checkout_is_looked_for_again_within_a_second_of_a_scan_whatever_it_counted(
    live: LiveIndex, files: list[Path], monkeypatch: pytest.MonkeyPatch
):
    """A client without file events notices it within two seconds: the idle worker looks once a second."""
    clock = [1000.0]
    monkeypatch.setattr(followed_tables, "monotonic", lambda: clock[0])
    real = TableSync.sync_file

    def slow(sync: TableSync, path: str) -> Any:
        clock[0] += 0.1
        return real(sync, path)

    monkeypatch.setattr(TableSync, "sync_file", slow)
    change(files)
    rescan(live)
    assert clock[0] > 1010.0
    assert live.tables.due["mine"].soonest <= 1001.0

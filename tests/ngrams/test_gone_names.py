"""Names that only outdated texts have: offered no more, however long it takes to subtract these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spd_lsp.ngrams import file_sync
from spd_lsp.ngrams.followed_tables import Due
from spd_lsp.ngrams.live_index import LiveIndex
from tests.ngrams.test_live_index import Snapshot, held, live_over, opened, rescan, settle, show, table_of

FILES = 20
GONE = "def only_here(): both_know()\n"
KEPT = "def stays(): both_know()\n"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files that are to be deleted, beside one that stays."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "kept.py").write_text(KEPT)
    files = [folder / f"n{number}.py" for number in range(FILES)]
    for number, file in enumerate(files):
        file.write_text(f"{GONE}N{number} = {number}\n")
    return files


@pytest.fixture
def live(files: list[Path]) -> LiveIndex:
    """An index with no room for what is deleted."""
    folder = files[0].parent
    live = live_over((table_of(folder), Snapshot(sorted(folder.glob("*.py")))))
    settle(live)
    live.synced["mine"].ledger.overlay.max_ngrams = 0
    return live


@pytest.fixture(params=["reported", "found"])
def delete(request: pytest.FixtureRequest, live: LiveIndex) -> Any:
    """Delete files, and say so or not."""

    def delete(*files: Path) -> None:
        for file in files:
            file.unlink()
        if request.param == "reported":
            live.update_files(files)
            settle(live)
        else:
            rescan(live)

    return delete


def test_names_of_deleted_files_are_gone_though_nothing_could_be_subtracted(
    live: LiveIndex, files: list[Path], delete: Any
):
    before = live.revision
    assert not live.is_gone("only_here")
    delete(*files)
    assert live.synced["mine"].ledger.overlay.full and not len(held(live))
    assert live.is_gone("only_here") and live.revision > before
    assert not live.is_gone("both_know") and not live.is_gone("never_seen")


def test_a_name_that_a_changed_or_new_file_has_is_not_gone(live: LiveIndex, files: list[Path], delete: Any):
    (files[0].parent / "new.py").write_text("only_here = 2\n")
    live.update_files([files[0].parent / "new.py"])
    delete(*files)
    assert not live.is_gone("only_here")
    (files[0].parent / "new.py").write_text("other = 2\n")
    live.update_files([files[0].parent / "new.py"])
    settle(live)
    assert live.is_gone("only_here")


def test_a_name_in_an_open_document_is_not_gone(live: LiveIndex, files: list[Path], delete: Any, tmp_path: Path):
    delete(*files)
    show(live, tmp_path / "beside.py", "only_here()\n")
    assert not live.is_gone("only_here")
    asked = opened(tmp_path / "asked.py", "x = 1\n")
    live.set_active(asked, 0)
    assert not live.is_gone("only_here")


def test_what_changed_is_counted_before_what_is_deleted_fills_the_room(files: list[Path]):
    folder = files[0].parent
    for file in files[1:]:
        file.write_text("".join(f"value_{file.stem}_{i} = {i * i}\n" for i in range(60)))
    (folder / "zero.py").write_text("import os\n")
    live = live_over((table_of(folder), Snapshot(sorted(folder.glob("*.py")))))
    settle(live)
    live.synced["mine"].ledger.overlay.max_ngrams = 3_000
    for file in files[1:]:
        file.unlink()
    (folder / "zero.py").write_text("import os\nlearnt = os.sep\n")
    live.update_files([*files[1:], folder / "zero.py"])
    settle(live)
    sync = live.synced["mine"]
    assert sync.ledger.overlay.full
    assert sync.states[str((folder / "zero.py").resolve())] == file_sync._state_of(str(folder / "zero.py"))


@pytest.fixture(params=["reported", "found"])
def rewrite(request: pytest.FixtureRequest, live: LiveIndex) -> Any:
    """Write other text into files, and say so or not, but let nothing be done."""

    def rewrite(text: str, *files: Path) -> None:
        for file in files:
            file.write_text(text)
        if request.param == "reported":
            live.update_files(files)
        else:
            live.tables.due["mine"] = Due(0, 0)

    return rewrite


def test_names_that_files_had_before_they_changed_are_gone(live: LiveIndex, files: list[Path], rewrite: Any):
    rewrite("def other(): both_know()\n", *files)
    settle(live)
    assert live.is_gone("only_here")
    assert not any(map(live.is_gone, ("both_know", "other", "stays", "never_seen")))


def test_until_it_is_known_which_names_are_gone_only_those_are_not_that_were_found(
    live: LiveIndex, files: list[Path], rewrite: Any
):
    """Those of open documents and of what these import come first."""
    imported = files[0].parent / "zebra.py"
    imported.write_text("near = 1\n")
    live.update_files([imported])
    settle(live)
    asked = "import zebra\nopen_name = 1\n"
    live.set_active(opened(files[0].parent / "asked.py", asked), len(asked))
    rewrite("def other(): both_know()\n", *files)
    while not live.gone_check:
        live.run_idle_work(0.0)
    while live.is_gone("near"):
        assert live.is_gone("only_here") and not live.is_gone("open_name")
        assert live.run_idle_work(0.0)
    assert live.is_gone("only_here") and live.is_gone("stays")  # of a file that is read later
    settle(live)
    assert live.is_gone("only_here") and not live.is_gone("stays")


def test_no_name_is_gone_once_what_changed_is_counted(files: list[Path]):
    folder = files[0].parent
    live = live_over((table_of(folder), Snapshot(sorted(folder.glob("*.py")))))
    settle(live)
    for file in files:
        file.write_text("def other(): both_know()\n")
    rescan(live)
    assert not live.synced["mine"].unread and live.gone_check is None

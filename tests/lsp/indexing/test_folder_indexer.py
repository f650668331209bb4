"""What is said of a folder whose index a person did not want."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pygls.lsp.server import LanguageServer

from spd_lsp.lsp.indexing import folder_indexer
from spd_lsp.lsp.indexing.build_process import BuildEvent, BuildTask
from spd_lsp.lsp.indexing.folder_indexer import FolderIndexer, exclude_folder, reason_not_to_index
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import until


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "asked.py").write_text("import os\n")
    return folder


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> SlowBuild:
    build = SlowBuild()
    monkeypatch.setattr(folder_indexer, "run_build", build.run)
    return build


class SlowBuild:
    """A build that goes on until it is cancelled, and ends once it may."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), asyncio.Event()
        self.ended = False

    async def run(self, task: BuildTask) -> AsyncIterator[BuildEvent]:
        self.began.set()
        try:
            await asyncio.Event().wait()
            yield BuildEvent("never")
        finally:
            await self.may_end.wait()
            self.ended = True


def indexer_of(folder: Path) -> FolderIndexer:
    indexer = FolderIndexer(LanguageServer("test", "1"))
    indexer.update([folder.as_uri()], Settings(data_dir=str(folder.parent / "data")), "some tokenizer")
    return indexer


async def test_a_folder_excluded_while_it_is_indexed_is_said_to_be_excluded(shop: Path, build: SlowBuild):
    """The build's process took longer to end than the exclusion, and its end was what the status told."""
    indexer = indexer_of(shop)
    await until(build.began.is_set)
    await indexer.exclude(shop.as_uri())
    build.may_end.set()
    await until(lambda: build.ended and indexer._runner.done())
    assert indexer.reason_not_indexed(shop / "asked.py") == "you excluded it"


async def test_a_build_that_begins_while_its_folder_is_excluded_ends(
    shop: Path, build: SlowBuild, monkeypatch: pytest.MonkeyPatch
):
    """It had read the choices of folders before, and was not there yet to be cancelled."""
    build.may_end.set()
    is_excluded = threading.Event()

    def read_before(*arguments):
        reason = reason_not_to_index(*arguments)
        is_excluded.wait(10)
        return reason

    def excluded_meanwhile(*arguments):
        answer = exclude_folder(*arguments)
        is_excluded.set()
        build.began.wait(10)
        return answer

    monkeypatch.setattr(folder_indexer, "reason_not_to_index", read_before)
    monkeypatch.setattr(folder_indexer, "exclude_folder", excluded_meanwhile)
    indexer = indexer_of(shop)
    await asyncio.sleep(0.2)  # the choices are read
    await indexer.exclude(shop.as_uri())
    await until(lambda: build.ended)
    assert indexer.reason_not_indexed(shop / "asked.py") == "you excluded it"

"""Opening a folder is enough: the server as installed, without settings, learns the names in it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.registry.registry import Registry
from tests.lsp.lsp_client import MENU, Editor, until
from tests.lsp.test_server_live import ASKED, HABITS, SERVE, until_offered
from tests.lsp.test_server_process import end, process
from tests.processes import commands_with

PROGRESS = {**MENU, "window": {"workDoneProgress": True}}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, makes links and pipes"),
]
TITLE = "spd-lsp: indexing shop"
LARGE_FILES = 10_001  # one more than are indexed unasked


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder whose habits no other table knows."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "habits.py").write_text(HABITS)
    (folder / "asked.py").write_text("import os\n")
    return folder


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data")


class Session(Editor):
    """An editor that also reads what the server logs."""

    log = ""

    async def read_log(self, errors: asyncio.StreamReader) -> None:
        while line := await errors.readline():
            self.log += line.decode()


@asynccontextmanager
async def opened(
    registry: Registry, *folders: Path, capabilities: Any = PROGRESS, **more: Any
) -> AsyncIterator[Session]:
    """An editor that has opened folders, with the model loaded."""
    named = [{"uri": folder.as_uri(), "name": folder.name} for folder in folders]
    async with process("-m", "spd_lsp", "--data-dir", str(registry.folder), *SERVE) as (child, editor):
        editor.__class__ = Session
        assert isinstance(editor, Session) and child.stderr
        logging = asyncio.ensure_future(editor.read_log(child.stderr))
        try:
            await editor.start_and_load(capabilities, workspaceFolders=named, **more)
            yield editor
            await editor.request("shutdown")
            editor.notify("exit")
            assert await end(child) == 0
            await logging
        finally:
            logging.cancel()
        assert "Traceback" not in editor.log and "frob" not in editor.log


async def why_not_indexed(editor: Editor, path: Path) -> str:
    """What the status says of a document; empty if its folder is indexed."""
    editor.open("", path.as_uri())
    status = await editor.request("spd-lsp/status", {"textDocument": {"uri": path.as_uri()}})
    assert status["indexed"] is (not status["notIndexedReason"])
    return str(status["notIndexedReason"])


def progress(editor: Editor, title: str = TITLE) -> list[dict[str, Any]]:
    """The reports of the builds with this title so far."""
    reports = editor.received("$/progress")
    tokens = {one["token"] for one in reports if one["value"].get("title") == title}
    return [one["value"] for one in reports if one["token"] in tokens]


def ended(editor: Editor) -> bool:
    return any(report["kind"] == "end" for report in progress(editor))


def told(editor: Editor) -> list[str]:
    """What the user is told of indexing."""
    parameters = editor.received("window/showMessage") + editor.received("window/logMessage")
    return [one["message"] for one in parameters if " index" in one["message"]]


def contents(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Everything in a folder, to compare."""
    for path in sorted(folder.rglob("*")):
        yield str(path), path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b""


async def left_alone(editor: Session, *reasons: str) -> None:
    """Wait until the server has decided not to index folders, in silence."""
    for reason in reasons:
        await until(partial(_has_logged, editor, f"not indexed: {reason}"))
    assert progress(editor) == told(editor) == []


def _has_logged(editor: Session, text: str) -> bool:
    return text in editor.log


def index_processes(folder: Path) -> list[str]:
    """The running builds of a folder."""
    return commands_with(b'{"folder": "%s"' % os.fsencode(folder))


async def test_opening_a_folder_is_enough_and_a_restart_builds_nothing(shop: Path, registry: Registry):
    before, asked = list(contents(shop)), (shop / "asked.py").as_uri()
    async with opened(registry, shop) as editor:
        await until(lambda: ended(editor))
        begin, *reports, _ = progress(editor)
        assert (begin["kind"], begin["cancellable"], begin["percentage"]) == ("begin", True, 0)
        assert [report["percentage"] for report in reports] == sorted(report["percentage"] for report in reports)
        editor.open(ASKED, asked)
        await until_offered(editor, asked)
        await until(lambda: len(told(editor)) == 2)
        (shown,) = [one["message"] for one in editor.received("window/showMessage")]
        assert shown == "spd-lsp: indexed shop (2 files)"
        (logged,) = [message for message in told(editor) if message != shown]
        assert f"{shop} was indexed: 2 files; the command spd-lsp.excludeFolder undoes that" in logged
        assert (await editor.status())["indexing"] is None
    (table,) = registry.tables()
    assert (table.name, table.roots, table.files) == ("shop", (shop,), 2)
    assert list(contents(shop)) == before
    async with opened(registry, shop) as editor:
        editor.open(ASKED, asked)
        await until_offered(editor, asked)
        await left_alone(editor, "it has a table")
    assert registry.tables() == [table]


async def test_a_folder_added_later_is_indexed_and_said_in_the_log_only(
    shop: Path, registry: Registry, tmp_path: Path
):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "one.py").write_text("import os\n")
    async with opened(registry, tmp_path / "first") as editor:
        await until(lambda: told(editor))
        added = {"added": [{"uri": shop.as_uri(), "name": "shop"}], "removed": []}
        editor.notify("workspace/didChangeWorkspaceFolders", {"event": added})
        await until(lambda: ended(editor) and len(told(editor)) == 3)
        assert len(editor.received("window/showMessage")) == 1
    assert {table.name for table in registry.tables()} == {"first", "shop"}


async def test_a_cancelled_build_ends_at_once(shop: Path, registry: Registry):
    with registry.lock_for_build("shop"):  # the build waits
        async with opened(registry, shop) as editor:
            await until(lambda: progress(editor))
            assert index_processes(shop)
            assert (await editor.status())["indexing"] == {"folder": "shop", "share": 0.0}
            (token,) = {
                one["token"] for one in editor.received("$/progress") if one["value"].get("title") == TITLE
            }
            editor.notify("window/workDoneProgress/cancel", {"token": token})
            await until(lambda: ended(editor) and not index_processes(shop))
            assert (await editor.status())["indexing"] is None
    assert registry.tables() == []


async def test_a_build_ends_with_the_server(shop: Path, registry: Registry):
    with registry.lock_for_build("shop"):
        arguments = ("-m", "spd_lsp", "--data-dir", str(registry.folder), *SERVE)
        async with process(*arguments) as (child, editor):
            await editor.start(PROGRESS, rootUri=shop.as_uri())
            await until(lambda: progress(editor))
            assert index_processes(shop)
            child.kill()
            await child.wait()
            await until(lambda: not index_processes(shop))


async def test_commands_exclude_a_folder_and_index_it_again(shop: Path, registry: Registry):
    def execute(command: str) -> dict[str, Any]:
        return {"command": command, "arguments": [shop.as_uri()]}

    async with opened(registry, shop) as editor:
        await until(lambda: told(editor))
        await editor.request("workspace/executeCommand", execute("spd-lsp.excludeFolder"))
        assert any("its tables were deleted: shop" in text for text in told(editor))
        assert registry.tables() == []
        assert await why_not_indexed(editor, shop / "asked.py") == "you excluded it"
    async with opened(registry, shop) as editor:
        await left_alone(editor, "you excluded it")
        await editor.request("workspace/executeCommand", execute("spd-lsp.indexFolder"))
        await until(lambda: ended(editor) and told(editor))
        assert await why_not_indexed(editor, shop / "asked.py") == ""
    assert [table.name for table in registry.tables()] == ["shop"]
    async with opened(registry, shop) as editor:
        await left_alone(editor, "it has a table")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder of very many files."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for number in range(LARGE_FILES):
        (folder / f"{number}.py").write_text("import os\n")
    return folder


async def test_of_a_large_folder_the_user_is_told_what_indexes_it(large: Path, registry: Registry):
    async with opened(registry, large) as editor:
        await until(lambda: editor.received("window/showMessage"))
        (message,) = editor.received("window/showMessage")
        assert message["message"].startswith(f"spd-lsp: {large} is not indexed: it has more than 10,000 files")
        assert message["message"].endswith(f"; to index it, run: spd-lsp build-ngrams {large}")
        assert "it has more than 10,000 files" in await why_not_indexed(editor, large / "0.py")
        assert registry.tables() == []
        await editor.request("workspace/executeCommand", {"command": "spd-lsp.indexFolder", "arguments": []})
        await until(lambda: "was indexed" in told(editor)[-1])
    assert [table.name for table in registry.tables()] == ["shop"]

"""What an editor's status bar knows of the tables of a folder, over the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ngram_builders.registry.registry import Registry
from spd_lsp.cli import main
from spd_lsp.completion.loading import load_completer
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import MENU, Editor, at, session

pytestmark = pytest.mark.slow  # loads the model and builds tables
SOURCE = "def total(prices):\n    return sum(prices)\n"


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Editor]:
    """An editor with a folder open that has a table, as has another folder."""
    data = tmp_path / "data"
    for name in ("shop", "other"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "total.py").write_text(SOURCE)
        built = CliRunner().invoke(main, ["--data-dir", str(data), "build-ngrams", str(folder)])
        assert built.exit_code == 0, built.output
    async with session(load_completer, Settings(data_dir=str(data), indexing="off")) as editor:
        await editor.start_and_load(MENU, rootUri=(tmp_path / "shop").as_uri())
        yield editor


async def test_the_status_tells_of_a_document(editor: Editor, tmp_path: Path):
    file, notes = tmp_path / "shop" / "total.py", tmp_path / "shop" / "notes.md"

    async def about(path: Path) -> tuple[str, bool | None]:
        status = await editor.request("spd-lsp/status", {"textDocument": {"uri": path.as_uri()}})
        return status["documentReason"], status["indexed"]

    assert "indexed" not in await editor.status()
    assert await about(file) == ("the document is not open", True)
    editor.open(SOURCE + "\n\ndef total_of", uri=file.as_uri())
    editor.open("# Notes", uri=notes.as_uri(), language="markdown")
    assert await about(file) == ("", True)
    assert (await about(notes))[0] == "completions are off for markdown"
    assert await about(tmp_path / "elsewhere.py") == ("the document is not open", None)
    exclude = {"command": "spd-lsp.excludeFolder", "arguments": [file.parent.as_uri()]}
    await editor.request("workspace/executeCommand", exclude)
    assert await about(file) == ("", False)
    for params in ([], {"textDocument": []}, {"textDocument": {"uri": 3}}):
        assert "documentReason" not in await editor.request("spd-lsp/status", params)


async def test_tables_that_another_process_chose_serve_the_next_completion(editor: Editor, tmp_path: Path):
    shop = tmp_path / "shop"
    file = shop / "total.py"
    editor.open(SOURCE + "print(total(", uri=file.as_uri())

    async def serving() -> str:
        await editor.request("textDocument/completion", at(2, 12, uri=file.as_uri()))
        return str((await editor.status())["tables"][0])

    assert await serving() == "shop"
    Registry(tmp_path / "data").assign_workspace(shop, [("other", 1.0)])
    assert await serving() == "other"

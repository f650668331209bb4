"""What an editor's status bar knows of the tables of a folder, over the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.completion.loading import load_completer
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import MENU, session

pytestmark = pytest.mark.slow  # loads the model and builds tables
SOURCE = "def total(prices):\n    return sum(prices)\n"


async def test_the_status_tells_of_a_document(tmp_path: Path):
    shop, data = tmp_path / "shop", tmp_path / "data"
    file, notes = shop / "total.py", shop / "notes.md"
    shop.mkdir()
    file.write_text(SOURCE)
    built = CliRunner().invoke(main, ["--data-dir", str(data), "build-ngrams", str(shop)])
    assert built.exit_code == 0, built.output

    async with session(load_completer, Settings(data_dir=str(data), indexing="off")) as editor:
        await editor.start_and_load(MENU, rootUri=shop.as_uri())

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

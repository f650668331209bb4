"""What is counted of completions: over real stdio, as an editor accepts them, and read back by `spd-lsp stats`."""

from __future__ import annotations

import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.lsp.usage import add_counts
from tests.lsp.lsp_client import Editor, at, edit
from tests.lsp.test_server_process import end, serving

SOURCE = "import json\n\n\ndef load(secret_path):\n    with open(secret_path) as file:\n        return json."


def stats(data: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["--data-dir", str(data), "stats", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


async def accept(editor: Editor, item: dict[str, Any], text: str, line: int, column: int) -> None:
    """Insert an item, and run its command as editors do."""
    editor.send(edit(text, line, column, column))
    command = item["command"]
    await editor.request(
        "workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]}
    )


async def test_accepted_drafts_are_counted_and_nothing_else_is_kept(tmp_path: Path):
    assert stats(tmp_path) == "nothing has been counted yet\n"
    async with serving(tmp_path) as (child, editor):
        editor.open(SOURCE)
        line, column = 5, len(SOURCE.splitlines()[-1])
        ghosts = await editor.request("textDocument/inlineCompletion", at(line, column))
        text = ghosts["items"][0]["insertText"]
        await accept(editor, ghosts["items"][0], text, line, column)
        editor.send(edit("\n\n\ndef save(secret_path):\n    js", line, column + len(text), column + len(text)))
        menu = await editor.request("textDocument/completion", at(line + 4, 6))
        await accept(editor, menu["items"][0], menu["items"][0]["textEdit"]["newText"][2:], line + 4, 6)
        assert (await editor.status())["usage"].startswith("2 accepted")
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0
    rows = json.loads(stats(tmp_path, "--json"))
    saved = len(text) + len(menu["items"][0]["textEdit"]["newText"]) - 2 - 2  # each is accepted with one key
    assert {row["language"] for row in rows} == {"python"}
    assert sum(row["accepted"] for row in rows) == 2 <= sum(row["offered"] for row in rows)
    assert sum(row["keystrokes"] for row in rows) == saved
    [file] = tmp_path.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and "secret_path" not in file.read_text()
    assert stats(tmp_path).splitlines()[-1].split()[:3] == ["all", str(sum(row["offered"] for row in rows)), "2"]
    stats(tmp_path, "--reset")
    assert stats(tmp_path) == "nothing has been counted yet\n"


@pytest.mark.parametrize("content", ['[["python", "model"', '[["python", "model", 1e999]]'])
def test_a_damaged_file_stops_nothing_and_is_named_with_the_remedy(tmp_path: Path, content: str):
    (tmp_path / "usage.json").write_text(content)
    add_counts(tmp_path, Counter({("python", "model", 0): 3}))
    result = CliRunner().invoke(main, ["--data-dir", str(tmp_path), "stats"])
    assert result.exit_code == 1 and "`spd-lsp stats --reset`" in result.output
    stats(tmp_path, "--reset")
    assert stats(tmp_path) == "nothing has been counted yet\n"

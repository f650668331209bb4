"""Weights are learnt from what editors insert: over real stdio, and read back by `ngrams which`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ngram_builders.registry.learnt_weights import LEARNT_FILE
from spd_lsp.cli import main
from tests.lsp.lsp_client import Editor, at, edit
from tests.lsp.test_server_process import end, process

SOURCE = "import json\n\n\ndef read(secret_path):\n    with open(secret_path) as file:\n        return json."
TEAM = SOURCE.replace("read", "load{0}") + "dumps(secret_path)\n"
LINE, COLUMN = 5, len(SOURCE.splitlines()[-1])


def spd_lsp(data: Path, *arguments: object) -> str:
    result = CliRunner().invoke(main, ["--data-dir", str(data), *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def team_table(data: Path, file: Path) -> dict[str, object]:
    tables = json.loads(spd_lsp(data, "ngrams", "which", file, "--json"))["tables"]
    return next(one for one in tables if one["table"] == "team")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder, beside a team's code that has a table."""
    for name in ("team", "shop"):
        (tmp_path / name).mkdir()
    for number in range(3):
        (tmp_path / "team" / f"{number}.py").write_text(TEAM.format(number), encoding="utf-8")
    spd_lsp(tmp_path / "data", "build-ngrams", tmp_path / "team", "--name", "team")
    return tmp_path / "shop"


async def accept_best(editor: Editor, uri: str) -> None:
    """Insert the best of those that are whole, and run its command as editors do; and take it back."""
    ghosts = await editor.request("textDocument/inlineCompletion", at(LINE, COLUMN, uri=uri))
    item = next(one for one in ghosts["items"] if one["insertText"].startswith("dumps(secret"))
    text, command = item["insertText"], item["command"]
    editor.send(edit(text, LINE, COLUMN, COLUMN, uri=uri))
    accepted = {"command": command["command"], "arguments": command["arguments"]}
    await editor.request("workspace/executeCommand", accepted)
    editor.send(edit("", LINE, COLUMN, COLUMN + len(text), version=3, uri=uri))


@pytest.mark.slow
@pytest.mark.parametrize("given", ["team", "team=0.05"])
async def test_a_weight_that_nobody_gave_rises_with_what_the_table_says_and_is_accepted(shop: Path, given: str):
    data, file = shop.parent / "data", shop / "app.py"
    spd_lsp(data, "ngrams", "use", given, "--add", "--workspace", shop)
    async with process("-m", "spd_lsp", "--data-dir", str(data), "serve", "--device", "cpu") as (child, editor):
        await editor.start()
        await editor.ready()
        editor.open(SOURCE, file.as_uri())
        for _ in range(3):
            await accept_best(editor, file.as_uri())
        for _ in range(100):  # until what is idle work has been done
            if (data / LEARNT_FILE).exists() or "=" in given:
                break
            await asyncio.sleep(0.1)
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0
    table = team_table(data, file)
    if given == "team":
        assert table["weight"] > 0.05 and table["learnt_in"] == str(shop) and table["learnt_from"] > 0
        assert "accepted tokens here, from 0.05 on" in spd_lsp(data, "ngrams", "which", file)
        assert b"json" not in (data / LEARNT_FILE).read_bytes()  # numbers, never code
    else:
        assert table["weight"] == 0.05 and "learnt_in" not in table
        assert not (data / LEARNT_FILE).exists()

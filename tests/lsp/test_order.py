"""The order of what is shown is that of the numbers shown, at every key, in every editor; over real pipes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.typist import CODE
from tests.lsp.lsp_client import Editor, at, edit
from tests.lsp.test_server_process import serving

ITEM = {"documentationFormat": ["markdown"], "snippetSupport": True}
VS_CODE = {"completion": {"completionItem": {**ITEM, "labelDetailsSupport": True}}, "inlineCompletion": {}}
NEOVIM = {"completion": {"completionItem": ITEM}, "inlineCompletion": {}}
HELIX = {"completion": {"completionItem": ITEM}}
EGLOT = {"completion": {"completionItem": {"snippetSupport": False}}}
LINES = [line for line in CODE.splitlines() if line.strip()][2:5]


def numbers(titles: list[str]) -> list[float]:
    """The probabilities among the details of what is shown, in its order."""
    return [float(found[1]) for title in titles if (found := re.match(r"(?:first line )?(\d+) %", title))]


async def shown(editor: Editor, place: dict[str, Any]) -> list[list[str]]:
    """The details of the menu's items as editors sort them, of the ghost texts, and of the list of all drafts."""
    menu = await editor.request("textDocument/completion", {**place, "context": {"triggerKind": 1}})
    ghost = await editor.request("textDocument/inlineCompletion", {**place, "context": {"triggerKind": 2}})
    drafts = await editor.request("spd-lsp/drafts", place)
    rows = sorted((menu or {"items": []})["items"], key=lambda item: item["sortText"])
    ghosts = [item["command"]["title"] for item in (ghost or {"items": []})["items"]]
    return [[item["detail"] for item in rows], ghosts, [draft["details"] for draft in drafts]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "client"), [("Visual Studio Code", VS_CODE), ("Neovim", NEOVIM), ("helix", HELIX), ("Eglot", EGLOT)]
)
async def test_no_number_stands_below_a_smaller_one(name: str, client: dict[str, Any], tmp_path: Path):
    seen = 0
    async with serving(tmp_path, capabilities={"textDocument": client}, clientInfo={"name": name}) as (_, editor):
        editor.open("\n")
        for row, line in enumerate(LINES):
            for column, key in enumerate(line):
                editor.send(edit(key, row, column, column, version=2 + seen))
                for titles in await shown(editor, at(row, column + 1, None)):
                    assert numbers(titles) == sorted(numbers(titles), reverse=True), (line[: column + 1], titles)
                    seen += 1
                    assert all(re.search(r"\bmodel\b|copied|name in your code", title) for title in titles), titles
            editor.send(edit("\n", row, len(line), len(line), version=2 + seen))

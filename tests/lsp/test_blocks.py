"""Where a block begins: first lines at once, the rest when it is written; real pipes, the bundled model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.lsp_client import Editor, until
from tests.lsp.test_server_process import serving
from tests.processes import TIMEOUT

GHOST = {"textDocument": {"inlineCompletion": {}}}
SOURCE = "".join(
    f"class {a}{b}:\n    def __init__(self, {a}, {b}):\n        self.{a} = {a}\n        self.{b} = {b}\n\n\n"
    for a, b in (("first", "second"), ("left", "right"))
)
SOURCE += "class TopBottom:\n    def __init__(self, top, bottom):\n        "


async def ghost_texts(editor: Editor, text: str) -> list[str]:
    """What is offered unasked at the end of a text."""
    line, character = text.count("\n"), len(text.rpartition("\n")[2])
    place: dict[str, Any] = {"textDocument": {"uri": "file:///code/app.py"}}
    place |= {"position": {"line": line, "character": character}, "context": {"triggerKind": 2}}
    answer = await editor.request("textDocument/inlineCompletion", place)
    return [item["insertText"] for item in answer["items"]]


async def asks_until_it_changes(editor: Editor, known: list[str]) -> list[str]:
    """Ask again and again, which must not keep the block from being written."""
    while (texts := await ghost_texts(editor, SOURCE)) == known:
        pass
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("asks_again", [True, False])
async def test_a_block_comes_behind_its_first_line_and_is_announced_to_those_who_ask_again(
    tmp_path: Path, asks_again: bool
):
    capabilities = {**GHOST, "experimental": {"spdLonger": asks_again}}
    async with serving(tmp_path, capabilities=capabilities) as (_, editor):
        editor.open(SOURCE)
        first = await ghost_texts(editor, SOURCE)
        assert "\n" not in first[0]
        if asks_again:
            await until(lambda: editor.received("spd-lsp/longer") == [{"uri": "file:///code/app.py"}])
        longer = await asyncio.wait_for(asks_until_it_changes(editor, first), TIMEOUT)
        assert longer[0].startswith(f"{first[0]}\n        self.")
        assert longer[1:] == first[1:]
        assert len(editor.received("spd-lsp/longer")) == asks_again

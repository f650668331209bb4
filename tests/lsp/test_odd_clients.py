"""Clients that send more, less or something else than LSP says start, edit and complete, or are told why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.lsp_client import URI, Editor, FakeCompleter, at, editing, session

CLIENTS: dict[str, Any] = json.loads((Path(__file__).parent / "initialize.json").read_text())  # as they send it
_MENU = "textDocument/completion"


async def _starts(params: Any) -> None:
    async with session(FakeCompleter()) as editor:
        answer = await editor.request("initialize", params)
        assert answer["capabilities"]["completionProvider"]["triggerCharacters"] == ["."], params
        assert "inlineCompletionProvider" in answer["capabilities"]
        editor.replies["workspace/configuration"] = [None]
        editor.notify("initialized", {})
        await editor.ready()
        editor.open("x = \n")
        assert (await editor.request(_MENU, at(0, 4)))["items"], params
        editor.error_codes.clear()
        await editor.request("shutdown")


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_session_starts_with_what_editors_send(client: str):
    await _starts(CLIENTS[client])


def _change(changes: Any) -> dict[str, Any]:
    params = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": changes}
    return {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params}


def _text(editor: Editor) -> str:
    return editor.server.workspace.get_text_document(URI).source


@pytest.mark.parametrize(
    "change",
    [
        {"text": "y = 2\n"},
        {"range": {"start": {"line": 9, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "y = 2\n"},
    ],
)
async def test_an_edit_that_can_mean_only_one_thing_is_made(change: dict[str, Any]):
    async with editing(FakeCompleter()) as editor:
        editor.send(_change([change]))
        await editor.status()
        assert _text(editor) == "y = 2\n"

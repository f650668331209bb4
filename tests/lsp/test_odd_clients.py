"""Clients that send more, less or something else than LSP says start, edit and complete, or are told why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.lsp_client import URI, Editor, FakeCompleter, at, edit, editing, session

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


@pytest.mark.parametrize(
    "capabilities",
    [
        {"textDocument": {"publishDiagnostics": {"tagSupport": {"valueSet": [1, 2, -1, -2]}}}},
        {"textDocument": {"completion": {"completionItemKind": {"valueSet": [1, 118115]}}}},
        {"textDocument": {"semanticTokens": {}}},
        {"general": {"positionEncodings": ["utf-7", 8]}},
        None,
    ],
)
async def test_unknown_and_incomplete_capabilities_do_not_keep_a_session_from_starting(capabilities: Any):
    await _starts({"processId": 1, "rootUri": None, "capabilities": capabilities, "trace": "on"})


async def test_what_the_server_uses_is_kept_beside_what_it_does_not_know():
    item = {"snippetSupport": True, "tagSupport": True, "insertTextModeSupport": {"valueSet": [1, 9, 2]}}
    capabilities = {"textDocument": {"completion": {"completionItem": item}, "codeAction": []}}
    folders = [{"uri": "file:///code"}, {"uri": "file:///more", "name": 5}, {"name": "nowhere"}]
    async with session(FakeCompleter()) as editor:
        await editor.start(capabilities, workspaceFolders=folders)
        assert editor.server.client.snippets
        assert {mode.value for mode in editor.server.client.modes} == {1, 2}
        assert editor.server.workspace.folder_uris == ["file:///code", "file:///more"]


def _change(changes: Any, document: Any = None) -> dict[str, Any]:
    params = {"textDocument": document or {"uri": URI}, "contentChanges": changes}
    return {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params}


def _text(editor: Editor) -> str:
    return editor.server.workspace.get_text_document(URI).source


def _said(editor: Editor) -> list[str]:
    return [params["message"] for params in editor.received("window/showMessage")]


@pytest.mark.parametrize("version", [{}, {"version": None}, {"version": "x"}])
async def test_an_edit_without_a_version_is_made(version: dict[str, Any]):
    async with editing(FakeCompleter(), text="walrus_size = 1\nprint()\n") as editor:
        first = edit("wal", 1, 6, 6)
        first["params"]["textDocument"] = {"uri": URI, **version}
        editor.send(first, edit("rus", 1, 9, 9))
        assert (await editor.request(_MENU, at(1, 12)))["items"]
        assert _text(editor) == "walrus_size = 1\nprint(walrus)\n"
        assert not _said(editor)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "y = 2\n"},
        {"range": None, "text": "y = 2\n"},
        {"range": {"start": {"line": 9, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "y = 2\n"},
    ],
)
async def test_an_edit_that_can_mean_only_one_thing_is_made(change: dict[str, Any]):
    async with editing(FakeCompleter()) as editor:
        editor.send(_change([change]))
        await editor.status()
        assert _text(editor) == "y = 2\n"
        assert not _said(editor)


_HERE = {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 4}}


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"text": "y"},
        [{"text": None}],
        [{"range": {"start": {"line": 0, "character": 0}}, "text": "y"}],
        [{"range": _HERE, "text": "1"}, {"range": [], "text": "2"}],
    ],
)
async def test_a_document_that_may_be_out_of_step_is_not_completed_until_its_text_comes_again(changes: Any):
    async with editing(FakeCompleter()) as editor:
        editor.send(_change(changes), _change(changes))
        editor.send(edit("1", 0, 4, 4))
        assert not (await editor.request(_MENU, at(0, 5)))["items"]
        (said,) = _said(editor)
        assert "app.py" in said and "save it" in said
        assert said.removeprefix("spd-lsp: ") == (await _why(editor))
        editor.notify("textDocument/didSave", {"textDocument": {"uri": URI}, "text": "x = 12\n"})
        assert (await editor.request(_MENU, at(0, 6)))["items"]
        assert _text(editor) == "x = 12\n" and not await _why(editor)
        editor.send(_change(changes))
        editor.open("x = 3\n")
        assert (await editor.request(_MENU, at(0, 5)))["items"]
        editor.send(_change(changes), _change([{"text": "x = 4\n"}]))
        assert (await editor.request(_MENU, at(0, 5)))["items"]


async def _why(editor: Editor) -> str:
    status = await editor.request("spd-lsp/status", {"textDocument": {"uri": URI}})
    return str(status["documentReason"])


@pytest.mark.parametrize("document", [None, {"uri": 7}])
async def test_an_edit_of_nobody_knows_what_puts_every_document_out_of_step(document: Any):
    async with editing(FakeCompleter()) as editor:
        message = _change([{"text": "y"}])
        message["params"]["textDocument"] = document
        editor.send(message)
        assert not (await editor.request(_MENU, at(0, 4)))["items"]
        assert len(_said(editor)) == 1


async def test_a_document_opened_without_version_and_language_is_completed():
    async with editing(FakeCompleter()) as editor:
        item = {"uri": "file:///code/b.py", "text": "y = \n", "version": None}
        editor.notify("textDocument/didOpen", {"textDocument": item})
        assert (await editor.request(_MENU, at(0, 4, uri="file:///code/b.py")))["items"]


async def test_an_unknown_kind_of_request_is_one_that_was_asked_for():
    async with editing(FakeCompleter()) as editor:
        assert (await editor.request(_MENU, at(0, 4, kind=7)))["items"]


async def test_a_drive_may_be_written_in_any_way():
    drive = "file:///C%3A/code/a.py"
    async with session(FakeCompleter()) as editor:
        await editor.start_and_load()
        editor.open("x = \n", "file:///c:/code/a.py")
        editor.send(edit("1 + ", 0, 4, 4, uri=drive))
        assert (await editor.request(_MENU, at(0, 8, uri=drive)))["items"]
        assert [document.source for document in editor.server.workspace.documents] == ["x = 1 + \n"]
        editor.notify("textDocument/didClose", {"textDocument": {"uri": drive}})
        await editor.status()
        assert editor.server.workspace.documents == []

"""Every request gets a reply, whatever a client sends, and nothing of it is logged or shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.lsp.lsp_client import URI, FakeCompleter, RpcError, at, result, session

COMPLETION = "textDocument/completion"


async def code_of(reply: asyncio.Future[Any]) -> int:
    with pytest.raises(RpcError) as caught:
        await result(reply)
    assert caught.value.data is None  # no traceback, no path
    return caught.value.code


@pytest.mark.parametrize(
    "params",
    [
        None,
        {"textDocument": {"uri": URI}},
        {"textDocument": {"uri": URI}, "position": {"line": "secret", "character": 0}},
        [1, 2],
    ],
)
async def test_a_request_with_wrong_parameters_is_answered(params: Any, caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start()
        assert await code_of(editor.send_request(COMPLETION, params)[1]) == -32602
        assert not editor.received("window/showMessage")
        assert "secret" not in caplog.text


async def test_an_unknown_method_is_answered():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        assert await code_of(editor.send_request("textDocument/hover", at(0, 0))[1]) == -32601
        assert await code_of(editor.send_request("made/up", {"a b": 1})[1]) == -32601


@pytest.mark.parametrize("body", [b"{not json", b'"\xe9"', b"[" * 100_000, b"5", b"{}"])
async def test_after_an_unreadable_message_the_next_one_is_read(body: bytes, caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start_and_load()
        editor.writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert (await editor.status())["kind"] == "normal"
        assert not editor.received("window/showMessage")
        assert "Traceback" not in caplog.text and "not json" not in caplog.text


@pytest.mark.parametrize("method", [None, {"x": "secret"}])
async def test_what_is_no_name_of_a_method_is_dropped_without_its_content(method: Any, caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start()
        params = {"textDocument": {"uri": "file:///a.py", "text": "secret"}}
        editor.send({"jsonrpc": "2.0", "method": method, "params": params})
        assert (await editor.status())["kind"]
        assert "secret" not in caplog.text and "Traceback" not in caplog.text


def _sent(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **more}


@pytest.mark.parametrize(
    "messages",
    [
        [{"jsonrpc": "2.0", "id": "nobody", "result": 1}, {"jsonrpc": "2.0", "id": 77}],
        [_sent("textDocument/didOpen", {"textDocument": {"uri": 5, "text": "secret"}})],
        [_sent("textDocument/didChange", "secret")],
        [_sent("$/cancelRequest", {"id": wrong}) for wrong in (1, [1], {"x": 1}, None)],  # 1 is answered
        [{"jsonrpc": "2.0", "id": wrong, "result": 1} for wrong in ([1], {"x": 1}, None)],
    ],
    ids=["replies", "open", "change", "cancel", "odd ids"],
)
async def test_what_has_no_answer_is_dropped_in_silence_without_its_content(messages: Any, caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start_and_load()
        editor.send(*messages)
        assert (await editor.status())["kind"] == "normal"
        assert not editor.received("window/showMessage") and not editor.error_codes
        assert "secret" not in caplog.text and "Traceback" not in caplog.text

"""Whatever a client sends, every request is answered, and nothing of it is logged or shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spd_lsp.protocol import trail
from tests.spd_lsp.lsp_client import URI, FakeCompleter, RpcError, at, edit, frame, result, session

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
        {},
        {"textDocument": {"uri": URI}},
        {"textDocument": {"uri": URI}, "position": {"line": -1, "character": 0}},
        {"textDocument": {"uri": URI}, "position": {"line": "secret", "character": 0}},
        {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 0}},
        [1, 2],
        "secret",
    ],
)
async def test_a_request_with_wrong_parameters_is_answered(params: Any, caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start()
        assert await code_of(editor.ask(COMPLETION, params)[1]) == -32602
        assert not editor.told("window/showMessage")
        assert "secret" not in caplog.text


async def test_a_request_without_parameters_is_answered():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        for method in ("spd-lsp/status", "spd-lsp/unknown"):
            reply = editor.expect(method)
            editor.send({"jsonrpc": "2.0", "id": method, "method": method})
            assert "result" in (await reply) or "error" in (await reply)


async def test_an_unknown_method_is_answered():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        assert await code_of(editor.ask("textDocument/hover", at(0, 0))[1]) == -32601
        assert await code_of(editor.ask("made/up", {"a b": 1})[1]) == -32601


async def test_before_initialize_requests_are_refused_and_notifications_dropped():
    async with session(FakeCompleter()) as editor:
        editor.open("x = \n")
        assert await code_of(editor.ask(COMPLETION, at(0, 0))[1]) == -32002
        await editor.start()
        assert await editor.request(COMPLETION, at(0, 0)) == {"isIncomplete": True, "items": []}


async def test_a_second_initialize_is_refused():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        assert await code_of(editor.ask("initialize", {"processId": None, "capabilities": {}})[1]) == -32600


async def test_a_batch_and_another_version_are_refused():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        batch = editor.expect(None)
        editor.send([{"jsonrpc": "2.0", "id": 1, "method": "shutdown"}])
        assert await code_of(batch) == -32600
        old = editor.expect("old")
        editor.send({"jsonrpc": "1.0", "id": "old", "method": "made/up", "params": {}})
        assert await code_of(old) == -32600


async def test_an_unreadable_message_leaves_the_server_alive():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        editor.writer.write(b"Content-Length: 9\r\n\r\n{not json")
        editor.writer.write(b"Content-Length: 4\r\n\r\n\xff\xfe\x00\x00")
        assert (await editor.status())["kind"] in ("loading", "normal")
        assert not editor.told("window/showMessage")


async def test_an_edit_of_a_document_that_was_never_opened_is_dropped_in_silence(caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start()
        editor.send(edit("secret", 0, 0, 0))
        await editor.ready()
        assert not editor.told("window/showMessage")
        assert "secret" not in caplog.text


async def test_a_malformed_notification_is_dropped_without_its_content(caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start()
        editor.notify("textDocument/didOpen", {"textDocument": {"uri": 5, "text": "secret"}})
        editor.notify("textDocument/didChange", "secret")
        await editor.ready()
        assert not editor.told("window/showMessage")
        assert "secret" not in caplog.text


async def test_a_malformed_reply_to_us_ends_the_wait():
    async with session(FakeCompleter()) as editor:
        editor.replies["workspace/configuration"] = "not a list"
        await editor.start({"workspace": {"configuration": True}})
        await editor.ready()
        assert (await editor.status())["kind"] == "normal"


async def test_a_reply_to_nobody_is_dropped():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        editor.send({"jsonrpc": "2.0", "id": "nobody", "result": 1}, {"jsonrpc": "2.0", "id": 77})
        assert (await editor.status())["kind"] in ("loading", "normal")


async def test_cancelling_what_was_answered_is_no_news(caplog: Any):
    async with session(FakeCompleter()) as editor:
        await editor.start()
        await editor.status()
        editor.notify("$/cancelRequest", {"id": 1})
        await editor.ready()
        assert not caplog.records


async def test_messages_in_pieces_are_read():
    async with session(FakeCompleter()) as editor:
        await editor.start()
        reply = editor.expect("slow")
        for byte in frame({"jsonrpc": "2.0", "id": "slow", "method": "spd-lsp/status", "params": None}):
            editor.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert "kind" in await result(reply)


def test_a_trail_names_the_error_and_the_places_but_not_its_text():
    try:
        raise KeyError("secret" * 1)
    except KeyError as error:
        told = trail(error)
    assert told.startswith("KeyError\n")
    assert "test_protocol.py" in told

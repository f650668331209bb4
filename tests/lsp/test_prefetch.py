"""After an edit and a pause the prompt is prefetched; a request finds it in the cache, or cancels it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from spd_lsp.lsp import session
from tests.lsp.lsp_client import FakeCompleter, at, edit, editing, result, texts, until

COMPLETION = "textDocument/completion"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(session, "PREFETCH_DELAY_SECONDS", 0.25)


async def test_the_prompt_at_the_last_edit_is_prefetched_when_typing_pauses():
    completer = FakeCompleter()
    async with editing(completer, text="a = 1\nx = \n") as editor:
        editor.send(*(edit(letter, 1, 4 + n, 4 + n, version=2 + n) for n, letter in enumerate("abc")))
        await until(lambda: completer.prefetched)
        await asyncio.sleep(2 * session.PREFETCH_DELAY_SECONDS)
        assert completer.prefetched == [("a = 1\nx = abc\n", 13)]


async def test_a_request_cancels_the_prefetch():
    completer = FakeCompleter()
    async with editing(completer) as editor:
        reply = editor.expect("soon")
        request = {"jsonrpc": "2.0", "id": "soon", "method": COMPLETION, "params": at(0, 5)}
        editor.send(edit("y", 0, 4, 4), request)
        await result(reply)
        await asyncio.sleep(2 * session.PREFETCH_DELAY_SECONDS)
        assert completer.requests and not completer.prefetched


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(session, "AHEAD_DELAY_SECONDS", 0.0)


ACCEPTED = ("x = one\n", 7, "python", Path("/code/app.py"), False)


async def test_what_follows_the_best_draft_is_answered_without_the_model(at_once):
    completer = FakeCompleter()
    async with editing(completer) as editor:
        await editor.request(COMPLETION, at(0, 4, 2))
        await until(lambda: completer.resumed)
        while (await editor.status())["busy"]:
            await asyncio.sleep(0.005)
        assert completer.resumed == [("x = \n", 4)]
        editor.send(edit("one", 0, 4, 4))
        assert texts(await editor.request(COMPLETION, at(0, 7, 2))) == ["oneone", "onetwo"]
        assert (await editor.status())["lastPasses"] == 0
    assert completer.requests[1] == ACCEPTED


async def test_a_request_for_what_is_computed_ahead_waits_for_it(at_once):
    completer = FakeCompleter(held=True)
    async with editing(completer) as editor:
        completer.turns.release(completer.steps)
        await editor.request(COMPLETION, at(0, 4, 2))
        await until(lambda: len(completer.requests) == 2)
        editor.send(edit("one", 0, 4, 4))
        _, reply = editor.send_request(COMPLETION, at(0, 7, 2))
        await editor.status()
        completer.turns.release(completer.steps)
        assert texts(await result(reply)) == ["oneone", "onetwo"]
        assert completer.requests.count(ACCEPTED) == 1
        completer.turns.release(99)


@pytest.mark.parametrize("uri", ["file:///code/app.py", "file:///code/other.py"])
async def test_any_other_request_cancels_what_is_computed_ahead(at_once, uri: str):
    completer = FakeCompleter(steps=1000, held=True)
    async with editing(completer) as editor:
        completer.turns.release(completer.steps)
        await editor.request(COMPLETION, at(0, 4, 2))
        await until(lambda: len(completer.requests) == 2)
        editor.open("y = \n", uri)
        _, reply = editor.send_request(COMPLETION, at(0, 3, 2, uri=uri))
        await editor.status()
        completer.turns.release(1)
        await until(lambda: completer.ended == 2)
        assert completer.answered == 1
        completer.turns.release(9 * completer.steps)
        assert texts(await result(reply))


def cursor(line: object, character: object, uri: str = "file:///code/app.py") -> dict[str, Any]:
    """The notification of an editor whose cursor rests somewhere."""
    params = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
    return {"jsonrpc": "2.0", "method": "spd-lsp/cursor", "params": params}


async def test_the_prompt_is_prefetched_where_the_cursor_rests_in_the_file_switched_to():
    completer = FakeCompleter()
    async with editing(completer, text="a = 1\nx = \n") as editor:
        editor.open("b = 2\ny = \n", "file:///code/other.py")
        way = [(0, 5, "app"), (1, 4, "app"), (1, 4, "other")]
        editor.send(*(cursor(line, character, f"file:///code/{uri}.py") for line, character, uri in way))
        await until(lambda: completer.prefetched)
        editor.send(cursor(1, 4, "file:///code/other.py"))
        await asyncio.sleep(2 * session.PREFETCH_DELAY_SECONDS)
        assert completer.prefetched == [("b = 2\ny = \n", 10)], "once"


async def test_a_cursor_that_follows_an_answer_does_not_stop_what_is_prepared_for_it(at_once):
    completer = FakeCompleter()
    async with editing(completer) as editor:
        await editor.request(COMPLETION, at(0, 4, 2))
        editor.send(cursor(0, 4))
        await until(lambda: completer.resumed)
        assert len(completer.requests) == 2
        assert not completer.prefetched


@pytest.mark.parametrize("uri", ["file:///code/.env", "file:///code/closed.py"])
async def test_nothing_is_read_in_what_is_excluded_or_closed(uri: str):
    completer = FakeCompleter()
    async with editing(completer) as editor:
        editor.open("KEY=", "file:///code/.env", "shellscript")
        editor.send(edit("1", 0, 4, 4, uri="file:///code/.env"))
        editor.send(cursor(0, 4, uri))
        await asyncio.sleep(2 * session.PREFETCH_DELAY_SECONDS)
        assert not completer.prefetched

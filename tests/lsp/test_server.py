"""The server in the test's own event loop, with a completer whose steps the test holds back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lsp.lsp_client import (
    Editor,
    FakeCompleter,
    RpcError,
    at,
    edit,
    editing,
    result,
    session,
    texts,
    until,
)

COMPLETION = "textDocument/completion"
INLINE = "textDocument/inlineCompletion"


@pytest.mark.parametrize("kind", [3, 1], ids=["while typing", "asked for"])
async def test_ghost_text_and_menu_at_one_place_share_one_decode(kind: int):
    """Ghost text does not replace the menu that the user is waiting for."""
    fake = FakeCompleter("a", "b", held=True)
    async with editing(fake) as editor:
        _, menu = editor.send_request(COMPLETION, at(0, 4, kind))
        await until(lambda: fake.steps_taken)
        _, ghost = editor.send_request(INLINE, at(0, 4, 2))
        await editor.status()
        fake.turns.release(9)
        assert texts(await result(menu)) == ["a", "b"]
        assert [item["insertText"] for item in (await result(ghost))["items"]] == ["a", "b"]
        assert len(fake.requests) == 1


async def cancelled(editor: Editor, fake: FakeCompleter) -> None:
    """Ask behind `x = `, and take that back while the model computes."""
    msg_id, reply = editor.send_request(COMPLETION, at(0, 4, 3))
    await until(lambda: fake.steps_taken == 1)
    editor.notify("$/cancelRequest", {"id": msg_id})
    with pytest.raises(RpcError) as caught:
        await result(reply)
    assert caught.value.code == -32800


async def test_a_cancelled_request_is_answered_at_once_and_its_result_answers_whoever_types_along():
    fake = FakeCompleter(held=True, seconds=1.0)
    async with editing(fake) as editor:
        await cancelled(editor, fake)
        editor.send(edit("o", 0, 4, 4))
        _, reply = editor.send_request(COMPLETION, at(0, 5, 3))
        await editor.status()
        fake.turns.release(9)
        assert texts(await result(reply)) == ["one"]
        assert len(fake.requests) == 1


@pytest.mark.parametrize("change", [("y", 0, 4, 4), ("z", 0, 0, 1)], ids=["typed otherwise", "elsewhere"])
async def test_a_cancelled_request_stops_within_one_step_once_the_text_goes_on_otherwise(change: Any):
    fake = FakeCompleter(steps=1000, held=True)
    async with editing(fake) as editor:
        await cancelled(editor, fake)
        editor.send(edit(*change))
        await editor.status()
        fake.turns.release(100)
        await until(lambda: fake.ended)
        assert fake.steps_taken == 1 and not fake.answered


async def test_while_a_slow_model_computes_other_keys_wait_and_the_newest_request_is_answered():
    fake = FakeCompleter("once(y)", "open(y)", steps=9, held=True, seconds=1.0)
    async with editing(fake) as editor:
        replies = [editor.send_request(COMPLETION, at(0, 4, 3))[1]]
        for number, letter in enumerate("onc"):
            await until(lambda: fake.steps_taken == 1)
            editor.send(edit(letter, 0, 4 + number, 4 + number, version=2 + number))
            replies.append(editor.send_request(COMPLETION, at(0, 5 + number, 3))[1])
            await editor.status()
        fake.turns.release(9)
        *older, newest = [await result(reply) for reply in replies]
        assert older == [None] * 3
        assert texts(newest) == ["once(y)"]
        assert len(fake.requests) == 1


async def test_what_is_left_of_the_first_draft_does_not_wait_for_a_slow_model_whose_answer_the_next_key_gets():
    fake = FakeCompleter("once(y)", steps=1, held=True, seconds=0.1)
    async with editing(fake) as editor:
        fake.turns.release(1)
        await editor.request(COMPLETION, at(0, 4, 3))
        editor.send(edit("o", 0, 4, 4))
        assert texts(await editor.request(COMPLETION, at(0, 5, 3))) == ["once(y)"]
        await until(lambda: len(fake.requests) == 2)
        fake.texts = ("nce(y)", "nly")
        fake.turns.release(1)
        await until(lambda: fake.answered == 2)
        editor.send(edit("n", 0, 5, 5, version=3))
        assert texts(await editor.request(COMPLETION, at(0, 6, 3))) == ["once(y)", "only"]
        fake.turns.release(9)


async def test_a_newer_request_answers_the_older_one_with_null_and_stops_it():
    fake = FakeCompleter(steps=1000, held=True)
    async with editing(fake) as editor:
        _, old = editor.send_request(COMPLETION, at(0, 4))
        await until(lambda: fake.steps_taken == 1)
        editor.send(edit("y", 0, 4, 4))
        _, new = editor.send_request(COMPLETION, at(0, 5))
        assert await result(old) is None
        fake.turns.release(1)
        await until(lambda: fake.ended == 1)
        assert fake.steps_taken <= 2
        fake.turns.release(2000)
        assert texts(await result(new)) == ["yone", "ytwo"]


async def test_whoever_switches_documents_waits_for_none_that_they_left():
    """A model that reads a document for ten seconds read ten of them before it answered in the last one."""
    fake = FakeCompleter(held=True)
    async with editing(fake) as editor:
        uris = [f"file:///{number}.py" for number in range(10)]
        replies = []
        for uri in uris:
            editor.open("z = \n", uri)
            replies.append(editor.send_request(COMPLETION, at(0, 4, uri=uri))[1])
        await until(lambda: fake.steps_taken)
        fake.turns.release(20)
        answers = [await result(reply) for reply in replies]
        assert answers[:-1] == [None] * 9 and texts(answers[-1])
        assert len(fake.requests) <= 2  # that of the first document had begun


@pytest.mark.parametrize(("encoding", "word"), [("utf-8", 12), ("utf-16", 10), ("utf-32", 9)])
async def test_ranges_are_in_the_negotiated_units(encoding: str, word: int):
    fake = FakeCompleter("t()")
    async with session(fake) as editor:
        answer = await editor.start({"general": {"positionEncodings": [encoding]}})
        assert answer["capabilities"]["positionEncoding"] == encoding
        await editor.ready()
        editor.open("x = '😀'; pr\n")
        editor.send(edit("in", 0, word + 2, word + 2))
        (item,) = (await editor.request(COMPLETION, at(0, word + 4, 3)))["items"]
        span = {"start": {"line": 0, "character": word}, "end": {"line": 0, "character": word + 4}}
        assert item["textEdit"] == {"range": span, "newText": "print()"}
        assert fake.requests[0][:2] == ("x = '😀'; prin\n", 13)


@pytest.mark.parametrize(
    ("uri", "path"),
    [("untitled:Untitled-1", None), ("file:///caf%C3%A9/app.py", Path("/café/app.py"))],
)
async def test_documents_of_any_uri_complete(uri: str, path: Path | None):
    fake = FakeCompleter()
    async with session(fake) as editor:
        await editor.start_and_load()
        editor.open("x = \n", uri)
        assert texts(await editor.request(COMPLETION, at(0, 4, uri=uri))) == ["one", "two"]
        assert fake.requests[0][3] == path


async def test_after_a_deletion_only_explicit_requests_are_answered():
    fake = FakeCompleter()
    async with editing(fake, text="x = yy\n") as editor:
        editor.send(edit("", 0, 5, 6))
        assert texts(await editor.request(COMPLETION, at(0, 5, 3))) == []
        assert (await editor.status())["reason"] == "text was deleted"
        answer = await editor.request(INLINE, at(0, 5, 1))
        assert len(answer["items"]) == 2


async def test_ghost_text_continues_the_selected_menu_item():
    fake = FakeCompleter("(a)")
    async with editing(fake, text="x = so\n") as editor:
        span = {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 6}}
        context = {"triggerKind": 2, "selectedCompletionInfo": {"range": span, "text": "sorted"}}
        answer = await editor.request(INLINE, {**at(0, 6), "context": context})
        assert fake.requests[0][:2] == ("x = sorted\n", 10)
        assert [(item["insertText"], item["range"]) for item in answer["items"]] == [("sorted(a)", span)]


async def test_an_error_in_the_completer_is_shown_once_and_leaves_the_server_alive(caplog: Any):
    fake = FakeCompleter()
    async with editing(fake) as editor:
        fake.error = KeyError("their_secret_code")
        for _ in range(3):
            assert texts(await editor.request(COMPLETION, at(0, 4))) == []
        (message,) = editor.received("window/showMessage")
        assert "KeyError" in message["message"]
        assert "their_secret_code" not in message["message"] + caplog.text
        fake.error = None
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["one", "two"]


async def test_all_drafts_at_a_cursor_come_with_their_details():
    async with editing(FakeCompleter("int(x)", "ocess()"), text="pr\n") as editor:
        place = at(0, 2, None)
        assert await editor.request("spd-lsp/drafts", place) == [
            {"text": "int(x)", "label": "print(x)", "details": "50 % · model"},
            {"text": "ocess()", "label": "process()", "details": "25 % · model"},
        ]


async def test_nothing_is_offered_while_typing_during_a_snooze_or_on_request_only():
    async with editing(FakeCompleter("one")) as editor:
        for method, params, ended_by in (
            ("spd-lsp/snooze", None, None),
            ("spd-lsp/options", {"automatic": False}, {}),
        ):
            await editor.request(method, params) if params is None else editor.notify(method, params)
            assert ((await editor.status())["snoozing"] > 290) is (params is None)
            assert texts(await editor.request("textDocument/completion", at(0, 4, 3))) == []
            assert (await editor.status())["reason"].startswith("completions are")
            assert texts(await editor.request("textDocument/completion", at(0, 4))) == ["one"]
            await editor.request(method, None) if params is None else editor.notify(method, ended_by)
            assert texts(await editor.request("textDocument/completion", at(0, 4, 3))) == ["one"]


async def test_completions_wait_until_no_key_came_for_a_while():
    completer = FakeCompleter("one")
    async with editing(completer) as editor:
        editor.notify("spd-lsp/options", {"delay": 2000})
        _, first = editor.send_request("textDocument/completion", at(0, 4, 3))
        editor.send(edit("y", 0, 4, 4))
        _, second = editor.send_request("textDocument/completion", at(0, 5, 3))
        assert await result(first) is None
        assert texts(await result(second)) == ["yone"]
        _, third = editor.send_request("textDocument/completion", at(0, 5, 3))
        await editor.status()  # the request is being waited with
        editor.send(edit("z", 0, 5, 5, version=3))
        assert await result(third) is None
        assert [source for source, *_ in completer.requests] == ["x = y\n"]

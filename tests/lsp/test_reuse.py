"""Whoever types along with the best draft gets its rest at once; whoever does not is answered by the model."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.completion.completer import Answer
from spd_lsp.completion.postprocess import Completion
from spd_lsp.lsp.request import Question
from spd_lsp.lsp.reuse import rest_of
from tests.lsp.lsp_client import FakeCompleter, at, edit, opened, session, texts

COMPLETION = "textDocument/completion"
ASKED = Question("x = \ny\n", 4, "python", None, "u", forced=False)


def answer(*drafts: str) -> Answer:
    return Answer([Completion(text, 0.5 / rank) for rank, text in enumerate(drafts, 1)], passes=4, tokens=4)


def after(typed: str, **changes: object) -> Question:
    source = ASKED.source[:4] + typed + ASKED.source[4:]
    return dataclasses.replace(ASKED, **{"source": source, "cursor": 4 + len(typed), **changes})


@pytest.mark.parametrize(("typed", "left"), [
    ("c", ["ompute(y)", "opy(y)"]), ("comp", ["ute(y)"]), ("compute(y", [")"]),
    ("compute(y)", None),  # there is nothing left to offer
    ("cop", None),  # the best draft was refused
    ("d", None), ("", None),
])  # fmt: skip
def test_what_is_left_of_drafts(typed: str, left: list[str] | None):
    found = rest_of(ASKED, answer("compute(y)", "copy(y)"), after(typed))
    assert (found and [draft.text for draft in found.completions]) == left
    assert found is None or found.passes == 0


@pytest.mark.parametrize("change", [
    {"source": "z = c\ny\n"}, {"source": "x = c\nz\n"}, {"name": "v"}, {"language": "go"}, {"cursor": 3},
])  # fmt: skip
def test_a_change_elsewhere_is_another_question(change: dict[str, object]):
    assert rest_of(ASKED, answer("compute(y)"), after("c", **change)) is None


def test_a_line_end_typed_is_a_line_feed_in_the_drafts():
    found = rest_of(ASKED, answer("{\n    y"), after("{\r\n"))
    assert found and [draft.text for draft in found.completions] == ["    y"]


def test_drafts_that_are_white_space_from_here_on_are_not_offered():
    assert rest_of(ASKED, answer("a  ", "ab"), after("a")) is None
    found = rest_of(ASKED, answer("ab", "a  "), after("a"))
    assert found and [draft.text for draft in found.completions] == ["b"]


def test_no_answer_has_no_rest():
    assert rest_of(ASKED, answer(), after("c")) is None


async def test_the_model_is_asked_once_for_a_draft_that_is_typed_through():
    completer = FakeCompleter("one(1)", "only")
    async with session(completer) as editor:
        await opened(editor)
        assert texts(await editor.request(COMPLETION, at(0, 4, 2))) == ["one(1)", "only"]
        for number, letter in enumerate("one"):
            editor.send(edit(letter, 0, 4 + number, 4 + number, version=2 + number))
            answer = await editor.request(COMPLETION, at(0, 5 + number, 2))
            assert answer["items"][0]["textEdit"]["newText"].endswith("one(1)"[number + 1 :])
        assert len(completer.asked) == 1
        assert (await editor.status())["lastPasses"] == 0
        editor.send(edit("!", 0, 7, 7, version=9))
        await editor.request(COMPLETION, at(0, 8, 2))
        assert len(completer.asked) == 2


async def test_who_asks_by_hand_is_answered_by_the_model():
    completer = FakeCompleter("one(1)")
    async with session(completer) as editor:
        await opened(editor)
        await editor.request(COMPLETION, at(0, 4, 1))
        editor.send(edit("o", 0, 4, 4))
        await editor.request("textDocument/inlineCompletion", {**at(0, 5, None), "context": {"triggerKind": 1}})
        assert len(completer.asked) == 2

"""Typing along with the best draft reuses the rest of it; anything else is answered by the model."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.completion.completer import CompletionResult
from spd_lsp.completion.postprocess import Completion
from spd_lsp.lsp.request import CompletionRequest, remaining
from tests.lsp.lsp_client import FakeCompleter, at, edit, opened, session, texts

COMPLETION = "textDocument/completion"
PREVIOUS = CompletionRequest("x = \ny\n", 4, "python", None, "u", explicit=False)


def result_of(*drafts: str) -> CompletionResult:
    return CompletionResult(
        [Completion(text, 0.5 / rank) for rank, text in enumerate(drafts, 1)], passes=4, tokens=4
    )


def after(typed: str, **changes: object) -> CompletionRequest:
    source = PREVIOUS.source[:4] + typed + PREVIOUS.source[4:]
    return dataclasses.replace(PREVIOUS, **{"source": source, "cursor": 4 + len(typed), **changes})


def remaining_texts(result: CompletionResult, request: CompletionRequest) -> list[str]:
    return [draft.text for draft in remaining(PREVIOUS, result, request)]


@pytest.mark.parametrize(("typed", "texts_left"), [
    ("c", ["ompute(y)", "opy(y)"]), ("comp", ["ute(y)"]), ("compute(y", [")"]),
    ("compute(y)", []),  # there is nothing left to offer
    ("cop", []),  # the best draft was rejected
    ("d", []), ("", []),
])  # fmt: skip
def test_what_remains_of_the_drafts(typed: str, texts_left: list[str]):
    assert remaining_texts(result_of("compute(y)", "copy(y)"), after(typed)) == texts_left


@pytest.mark.parametrize("change", [
    {"source": "z = c\ny\n"}, {"source": "x = c\nz\n"}, {"uri": "v"}, {"language": "go"}, {"cursor": 3},
])  # fmt: skip
def test_a_change_elsewhere_is_another_request(change: dict[str, object]):
    assert remaining_texts(result_of("compute(y)"), after("c", **change)) == []


def test_a_line_end_typed_is_a_line_feed_in_the_drafts():
    assert remaining_texts(result_of("{\n    y"), after("{\r\n")) == ["    y"]


def test_drafts_that_are_white_space_from_here_on_are_not_offered():
    assert remaining_texts(result_of("a  ", "ab"), after("a")) == []
    assert remaining_texts(result_of("ab", "a  "), after("a")) == ["b"]


def test_nothing_remains_of_no_drafts():
    assert remaining_texts(result_of(), after("c")) == []


async def test_the_model_runs_once_for_a_draft_that_is_typed_through():
    completer = FakeCompleter("one(1)", "only")
    async with session(completer) as editor:
        await opened(editor)
        assert texts(await editor.request(COMPLETION, at(0, 4, 2))) == ["one(1)", "only"]
        for number, letter in enumerate("one"):
            editor.send(edit(letter, 0, 4 + number, 4 + number, version=2 + number))
            answer = await editor.request(COMPLETION, at(0, 5 + number, 2))
            assert answer["items"][0]["textEdit"]["newText"].endswith("one(1)"[number + 1 :])
        assert len(completer.requests) == 1
        assert (await editor.status())["lastPasses"] == 0
        editor.send(edit("!", 0, 7, 7, version=9))
        await editor.request(COMPLETION, at(0, 8, 2))
        assert len(completer.requests) == 2


async def test_an_explicit_request_is_answered_by_the_model():
    completer = FakeCompleter("one(1)")
    async with session(completer) as editor:
        await opened(editor)
        await editor.request(COMPLETION, at(0, 4, 1))
        editor.send(edit("o", 0, 4, 4))
        await editor.request("textDocument/inlineCompletion", {**at(0, 5, None), "context": {"triggerKind": 1}})
        assert len(completer.requests) == 2

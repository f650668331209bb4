"""What is shown while someone types along with drafts, and when the model is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from spd_lsp.completion.offer import CompletionResult
from tests.lsp.lsp_client import URI, Editor, FakeCompleter, at, edit, editing, texts

COMPLETION = "textDocument/completion"

DRAFTS = {
    "x = ": ("compute(y)", "copy(y)", "count"),
    "x = com": ("pose(y)", "pute(z)", "plex"),
    "x = cop": ("ies", "ied"),
    "x = coun": ("sel", "ting"),
}


class Scripted(FakeCompleter):
    """Its drafts depend on what is left of the cursor."""

    def complete(self, source: str, cursor: int, *rest: Any, **options: Any) -> CompletionResult:
        self.texts = DRAFTS.get(source[:cursor], ())
        return super().complete(source, cursor, *rest, **options)


class Typist:
    """Types behind `x = `."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.column = 4

    async def shown(self) -> list[str]:
        """The drafts at the cursor, without the word that is typed."""
        answer = await self.editor.request(COMPLETION, at(0, self.column, 2))
        return [text[self.column - 4 :] for text in texts(answer)]

    async def type(self, letter: str) -> list[str]:
        """Type a letter; what is shown then."""
        self.type_unasked(letter)
        return await self.shown()

    def type_unasked(self, letter: str) -> None:
        """Type a letter so soon before the next one that the editor asks for nothing."""
        self.editor.send(edit(letter, 0, self.column, self.column, version=self.column))
        self.column += 1


@pytest.mark.parametrize(
    ("seconds", "letters", "shown", "asked"),
    [
        (0.0, "", ["compute(y)", "copy(y)", "count"], 1),
        (0.0, "co", ["mpute(y)", "py(y)", "unt"], 1),  # all drafts are typed along with
        (0.0, "com", ["pute(y)", "pose(y)", "pute(z)"], 2),  # the best one stays first, new ones replace others
        (0.0, "cop", ["ies", "ied", "y(y)"], 2),  # the best one is typed otherwise: others come last
        (0.0, "copy", [], 3),  # and the model has nothing to say
        (1.0, "co", ["mpute(y)", "py(y)", "unt"], 1),  # a slow model is asked only once no draft is left
        (1.0, "cop", ["y(y)"], 1),
    ],
)
async def test_drafts_that_are_typed_along_with_stay_and_the_model_is_asked_where_too_few_are_left(
    seconds: float, letters: str, shown: list[str], asked: int
):
    completer = Scripted(seconds=seconds)
    async with editing(completer) as editor:
        user = Typist(editor)
        found = await user.shown()
        for letter in letters:
            found = await user.type(letter)
        assert (found, len(completer.requests)) == (shown, asked)


async def test_what_an_editor_showed_first_before_it_asked_stays_first_even_if_it_was_a_later_draft():
    """After `cou` it shows the third draft; the answer after `coun` put new ones before that."""
    async with editing(Scripted()) as editor:
        user = Typist(editor)
        await user.shown()
        for letter in "cou":
            user.type_unasked(letter)
        assert await user.type("n") == ["t", "sel", "ting"]


async def test_a_draft_is_shown_again_once_a_wrong_letter_is_deleted():
    completer = FakeCompleter("one(1)", "ones", "one + 1")
    async with editing(completer) as editor:
        await editor.request(COMPLETION, at(0, 4, 2))
        editor.send(edit("one", 0, 4, 4))
        assert texts(await editor.request(COMPLETION, at(0, 7, 2)))[0] == "one(1)"
        editor.send(edit("!", 0, 7, 7, version=3))
        await editor.request(COMPLETION, at(0, 8, 2))
        assert len(completer.requests) == 2
        editor.send(edit("", 0, 7, 8, version=4))
        assert texts(await editor.request(COMPLETION, at(0, 7, 2)))[0] == "one(1)"
        assert len(completer.requests) == 2


async def test_a_result_answers_nothing_once_another_file_was_completed_or_code_was_indexed():
    completer = FakeCompleter()
    async with editing(completer) as editor:
        editor.open("a = 1\n", "file:///code/b.py")
        for uri in (URI, "file:///code/b.py", URI):
            await editor.request(COMPLETION, at(0, 4, 2, uri=uri))
        assert len(completer.requests) == 3
        completer.index_revision += 1
        await editor.request(COMPLETION, at(0, 4, 2))
        assert len(completer.requests) == 4

"""Next edits over a real connection: what was typed with `didChange` is proposed where it is wanted, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spd_lsp.edits.probability import MIN_PROBABILITY
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import URI, Editor, FakeCompleter, edit, opened, session
from tests.lsp.test_server_process import process

INLINE_EDIT = "textDocument/copilotInlineEdit"
SOURCE = """def area(width, height):
    # the width counts
    if height:
        return width * height
    return 0
"""
ON = Settings(next_edits=True)


def asked(version: int, **context: Any) -> dict[str, Any]:
    """What sidekick.nvim and copilot-lsp send."""
    document = {"uri": URI, "version": version}
    place = {"textDocument": document, "position": {"line": 0, "character": 14}}
    return {**place, "context": {"triggerKind": 2, **context}}


async def rename(editor: Editor) -> None:
    """Change the parameter `width` to `breadth` as a person does: select it, then type."""
    editor.send(edit("", 0, 9, 14, version=2))
    for number, char in enumerate("breadth"):
        editor.send(edit(char, 0, 9 + number, 9 + number, version=3 + number))


async def test_a_renamed_parameter_is_proposed_at_its_use_three_lines_below(tmp_path: Path):
    options = {"nextEdits": True, "model": "none"}
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), "serve") as (_, editor):
        await editor.start(initializationOptions=options)
        await editor.ready()
        editor.open(SOURCE)
        await rename(editor)
        [found] = (await editor.request(INLINE_EDIT, asked(9)))["edits"]
        assert found.pop("probability") >= MIN_PROBABILITY
        assert found == {
            "text": "breadth",
            "range": {"start": {"line": 3, "character": 15}, "end": {"line": 3, "character": 20}},
            "textDocument": {"uri": URI, "version": 9},
        }


async def test_nothing_is_proposed_unless_it_is_switched_on():
    async with session(FakeCompleter()) as editor:
        await opened(editor, SOURCE)
        await rename(editor)
        assert await editor.request(INLINE_EDIT, asked(9)) == {"edits": []}


async def test_an_edit_that_is_undone_is_proposed_nowhere():
    async with session(FakeCompleter(), ON) as editor:
        await opened(editor, SOURCE)
        await rename(editor)
        editor.send(edit("width", 0, 9, 16, version=10))
        assert await editor.request(INLINE_EDIT, asked(10)) == {"edits": []}


OTHER_URI = "file:///code/uses.py"
CALLS = """one = area(width, height)
two = area(width, depth)
"""


async def test_with_a_limit_places_in_other_open_documents_follow_those_of_this_one():
    async with session(FakeCompleter(), ON) as editor:
        await opened(editor, CALLS)
        editor.open(CALLS.replace("one =", "six ="), OTHER_URI)
        editor.open(CALLS, "file:///code/.env.py")  # may hold secrets
        for row, version in ((0, 2), (1, 3)):
            editor.send(edit(", debug=True", row, 24 - row, 24 - row, version=version))
        # That call of the other document is like the one that got an argument last.
        found = (await editor.request(INLINE_EDIT, asked(3, limit=20)))["edits"]
        assert {(one["textDocument"]["uri"], one["range"]["start"]["line"]) for one in found} == {(OTHER_URI, 1)}
        assert await editor.request(INLINE_EDIT, asked(3)) == {"edits": []}
        there = {"textDocument": {"uri": OTHER_URI, "version": 1}, "position": {"line": 0, "character": 0}}
        [same] = (await editor.request(INLINE_EDIT, {**there, "context": {"triggerKind": 2}}))["edits"]
        assert same["textDocument"] == {"uri": OTHER_URI, "version": 1}


@pytest.mark.parametrize(
    "params", [None, {}, {"textDocument": {"uri": 3}}, {"textDocument": {"uri": URI}, "context": 3}]
)
async def test_a_malformed_request_gets_nothing(params: Any):
    async with session(FakeCompleter(), ON) as editor:
        await opened(editor, SOURCE)
        assert await editor.request(INLINE_EDIT, params) == {"edits": []}

"""Next edits over a real connection: what was typed with `didChange` is proposed where it is wanted, too."""

from __future__ import annotations

from typing import Any

import pytest

from spd_lsp.settings import Settings
from tests.lsp.lsp_client import URI, Editor, FakeCompleter, edit, opened, session

INLINE_EDIT = "textDocument/copilotInlineEdit"
SOURCE = "".join(f'"é😀", area({n}{n}, width, height)\n' for n in range(4))
END = len('"é😀", area(00, width, height') + 1  # in UTF-16


def asked(uri: str = URI, **context: Any) -> dict[str, Any]:
    """What sidekick.nvim and copilot-lsp send."""
    place = {"textDocument": {"uri": uri, "version": 3}, "position": {"line": 0, "character": 14}}
    return {**place, "context": {"triggerKind": 2, **context}}


def write_twice(editor: Editor, uri: str = URI) -> None:
    """Give the first two calls one more argument."""
    for row, version in ((0, 2), (1, 3)):
        editor.send(edit(", debug=True", row, END, END, version, uri))


async def test_a_change_made_twice_is_proposed_in_the_lines_below():
    async with session(FakeCompleter()) as editor:
        await opened(editor, SOURCE)
        write_twice(editor)
        places = [{"line": row, "character": END} for row in (2, 3)]
        expected = [
            {"text": ", debug=True", "range": {"start": at, "end": at}, "textDocument": {"uri": URI, "version": 3}}
            for at in places
        ]
        assert await editor.request(INLINE_EDIT, asked(limit=20)) == {"edits": expected}
        assert await editor.request(INLINE_EDIT, asked()) == {"edits": expected[:1]}
        editor.send(edit("", 1, END, END + len(", debug=True"), version=4))  # taken back
        assert await editor.request(INLINE_EDIT, asked(limit=20)) == {"edits": []}


@pytest.mark.parametrize(
    ("settings", "uri", "about"),
    [
        (Settings(next_edits=False), URI, URI),
        (Settings(disabled_languages=("Python",)), URI, URI),
        (Settings(), "file:///code/.env.py", "file:///code/.env.py"),  # may hold secrets
        (Settings(), URI, "file:///code/other.py"),
    ],
)
async def test_nothing_is_proposed_where_it_is_off_or_in_other_documents(settings: Settings, uri: str, about: str):
    async with session(FakeCompleter(), settings) as editor:
        await opened(editor, SOURCE)
        for other in {uri, about} - {URI}:
            editor.open(SOURCE, other)
        write_twice(editor, uri)
        assert await editor.request(INLINE_EDIT, asked(about)) == {"edits": []}

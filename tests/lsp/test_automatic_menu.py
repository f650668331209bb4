"""Enter accepts a menu's item in most editors, so where there is ghost text no menu opens by itself."""

from __future__ import annotations

from typing import Any

import pytest

from spd_lsp.settings import Settings
from tests.lsp.lsp_client import Editor, FakeCompleter, at, edit, session, texts

COMPLETION = "textDocument/completion"
GHOST_TEXT = {"textDocument": {"inlineCompletion": {"dynamicRegistration": True}}}
INVOKED, TRIGGER_CHARACTER, INCOMPLETE = 1, 2, 3
NOTHING = {"isIncomplete": False, "items": []}


async def opened(editor: Editor, capabilities: dict[str, Any]) -> None:
    """Open a document in an editor that can do this."""
    await editor.start(capabilities)
    await editor.ready()
    editor.open("x = \n")


@pytest.mark.parametrize("kind", [TRIGGER_CHARACTER, INCOMPLETE])
async def test_an_editor_with_ghost_text_gets_no_menu_while_typing(kind: int):
    fake = FakeCompleter()
    async with session(fake) as editor:
        await opened(editor, GHOST_TEXT)
        assert await editor.request(COMPLETION, at(0, 4, kind)) == NOTHING
        assert not fake.requests


async def test_what_a_person_asks_for_right_after_typing_is_answered_at_once():
    fake = FakeCompleter("one")
    async with session(fake) as editor:
        await opened(editor, GHOST_TEXT)
        editor.send(edit(".", 0, 3, 3))
        assert texts(await editor.request(COMPLETION, at(0, 4, INVOKED))) == ["one"]
        assert [explicit for *_, explicit in fake.requests] == [True]


@pytest.mark.parametrize(
    ("capabilities", "settings", "kind", "follows_typing"),
    [
        (GHOST_TEXT, Settings(), INVOKED, False),
        (GHOST_TEXT, Settings(automatic_menu=True), TRIGGER_CHARACTER, True),
        ({}, Settings(), TRIGGER_CHARACTER, True),
    ],
    ids=["asked for", "enabled by the setting", "without ghost text"],
)
async def test_a_menu_opens_and_follows_typing_where_it_opens_by_itself(
    capabilities: dict[str, Any], settings: Settings, kind: int, follows_typing: bool
):
    async with session(FakeCompleter("one", "two"), settings) as editor:
        await opened(editor, capabilities)
        menu = await editor.request(COMPLETION, at(0, 4, kind))
        assert texts(menu) == ["one", "two"]
        assert menu["isIncomplete"] is follows_typing

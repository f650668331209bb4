"""Next edits in a real VS Code: a mark in the gutter, a note in the status bar; the rest is up to keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

SOURCE = "".join(f"shape{n} = area({n}{n}, width, height)\n" for n in range(4))
AFTER_TWO = SOURCE.replace("height", "length", 2)
SETTINGS = {
    "spd-lsp.model": "none",
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.inlineSuggest.enabled": False,
    "editor.occurrencesHighlight": "off",
}
MARKS = ".glyph-margin-widgets [class*='ced-']"


@pytest.fixture
def window(browser: Any, extensions: Path, tmp_path: Path) -> Iterator[Window]:
    with vscode(browser, extensions, tmp_path) as open_window:
        yield open_window(SOURCE, SETTINGS)


def change_twice(window: Window) -> None:
    """Write another name for the last argument of the first two calls, as a person does."""
    for keys in (["Control+Home"], ["Home", "ArrowDown"]):
        window.press(*keys, "End", "ArrowLeft", "Control+Shift+ArrowLeft")
        for char in "length":
            window.type(char)


def notes(window: Window) -> list[str]:
    return [text.strip() for text in window.texts(".statusbar-item:has-text('more to change')")]


def marks(window: Window) -> int:
    return int(window.page.locator(MARKS).count())


def test_places_are_marked_and_only_keys_jump_apply_and_dismiss(window: Window):
    assert (marks(window), notes(window)) == (0, [])
    change_twice(window)
    window.until("both places are marked", lambda: (marks(window), notes(window)) == (2, ["2 more to change"]))
    window.page.screenshot(path=str(window.folder / "marks.png"))
    column = SOURCE.index("height")
    assert window.cursor == (1, column + len("length"))
    assert window.saved() == AFTER_TWO
    window.press("Alt+n")
    window.until("the key has jumped", lambda: window.cursor == (2, column))
    assert window.saved() == AFTER_TWO
    window.press("Tab")
    window.until("it is applied, and the other place is marked", lambda: notes(window) == ["1 more to change"])
    assert window.saved() == SOURCE.replace("height", "length", 3)
    window.press("Control+z")
    assert window.saved() == AFTER_TWO


def test_what_escape_dismisses_is_not_proposed_again(window: Window):
    change_twice(window)
    window.until("both places are marked", lambda: marks(window) == 2)
    window.press("Escape")
    window.until("no place is marked", lambda: (marks(window), notes(window)) == (0, []))
    window.press("s", "Backspace")  # the same edit again
    window.wait(3)
    assert (marks(window), notes(window)) == (0, [])
    window.press("Tab")  # writes white space again, as everywhere
    assert window.saved().startswith(AFTER_TWO.partition(")\nshape2")[0] + " ")

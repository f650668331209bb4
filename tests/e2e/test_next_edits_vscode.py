"""Next edits in a real VS Code: a mark in the gutter, a note in the status bar; the rest is up to keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode
from tests.processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

SOURCE = """def area(width, height):
    if height:
        return width * height
    return width
"""
RENAMED = SOURCE.replace("(width", "(breadth")
ONE_MORE = RENAMED.replace("width *", "breadth *")
OF_THE_USER = {"spd-lsp.nextEdits": True}  # read from no folder, and not from the machine that VS Code serves
SETTINGS = {
    "spd-lsp.model": "none",
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.inlineSuggest.enabled": False,
    "editor.occurrencesHighlight": "off",
}
MARKS = ".glyph-margin-widgets [class*='ced-']"


CALLS = "one = area(width, height)\ntwo = area(width, depth)\n"


@pytest.fixture
def window(browser: Any, extensions: Path, tmp_path: Path) -> Iterator[Window]:
    with vscode(browser, extensions, tmp_path) as open_window:
        window = open_window(SOURCE, SETTINGS)
        set_for_user(window, OF_THE_USER)
        yield window


def set_for_user(window: Window, settings: dict[str, Any]) -> None:
    """Write the user's own settings, which VS Code keeps in the browser."""
    window.command("Preferences: Open User Settings (JSON)")
    window.until("it is empty", lambda: window.texts(".view-line") == ["{", "}"])
    window.page.locator(".editor-instance .view-lines").click()
    window.press("Control+a")
    window.page.keyboard.insert_text(json.dumps(settings))
    window.until("it is written", lambda: "nextEdits" in "".join(window.texts(".view-line")))
    window.press("Control+s")
    window.until("it is saved", lambda: not window.page.locator(".tab.dirty").count())
    window.page.locator(".tab:has-text('storage.py')").click()
    window.page.locator(".editor-instance .view-lines").click()
    window.page.locator(".editor-instance .monaco-editor.focused").wait_for()


def rename(window: Window, name: str) -> None:
    """Write another name for the first parameter, as a person does."""
    window.press("Control+Home", *["ArrowRight"] * len("def area("), "Control+Shift+ArrowRight")
    for char in name:
        window.type(char)


def notes(window: Window) -> list[str]:
    return [text.strip() for text in window.texts(".statusbar-item:has-text('more to change')")]


def marks(window: Window) -> int:
    return int(window.page.locator(MARKS).count())


def test_places_are_marked_and_only_keys_jump_apply_and_dismiss(window: Window):
    assert (marks(window), notes(window)) == (0, [])
    rename(window, "breadth")
    window.until("both places are marked", lambda: (marks(window), notes(window)) == (2, ["2 more to change"]))
    window.page.screenshot(path=str(window.folder / "marks.png"))
    assert window.cursor == (0, len("def area(breadth"))
    assert window.saved() == RENAMED
    window.press("Alt+n")
    window.until("the key has jumped", lambda: window.cursor == (2, len("        return ")))
    assert window.saved() == RENAMED
    window.press("Tab")
    window.until("it is applied, and the other place is marked", lambda: notes(window) == ["1 more to change"])
    assert window.saved() == ONE_MORE
    window.press("Control+z")
    assert window.saved() == RENAMED


def test_what_escape_dismisses_is_not_proposed_again(window: Window):
    rename(window, "breadth")
    window.until("both places are marked", lambda: marks(window) == 2)
    window.press("Escape")
    window.until("no place is marked", lambda: (marks(window), notes(window)) == (0, []))
    window.press("s", "Backspace")  # the same edit again
    window.wait(3)
    assert (marks(window), notes(window)) == (0, [])
    window.press("Tab")  # writes white space again, as everywhere
    assert window.saved() == RENAMED.replace("breadth", "breadth    ")


def test_a_key_opens_an_imported_file_that_is_not_open_and_jumps_to_its_place(
    browser: Any, extensions: Path, tmp_path: Path
):
    workspace = tmp_path / "work"
    workspace.mkdir()
    closed = workspace / "shapes.py"
    closed.write_text(CALLS.replace("one =", "six ="))
    with vscode(browser, extensions, tmp_path, workspace, trusted=True) as open_window:
        window = open_window(f"from shapes import area\n{CALLS}", SETTINGS)
        set_for_user(window, OF_THE_USER)
        wait_until("the folder has a table", lambda: any(tmp_path.rglob("*.ngt")))
        window.press("Control+Home", "ArrowDown")
        for _ in range(2):
            window.press("End", "ArrowLeft")
            window.page.keyboard.insert_text(", debug=True")
            window.press("ArrowDown")
        window.press("ArrowUp", "End")  # no change, so what is proposed stays
        window.until("a place is found", lambda: notes(window) == ["1 more to change"])
        assert window.saved().count("debug") == 2
        window.page.screenshot(path=str(window.folder / "closed.png"))
        window.press("Alt+n")
        window.until("the file is open", lambda: window.page.locator(".tab.active:has-text('shapes.py')").count())
        window.until("the cursor is there", lambda: window.cursor == (1, len("two = area(width, depth")))
        window.press("Tab")
        window.until("it is applied", lambda: window.page.locator(".tab.dirty").count())
        window.saved()
        window.page.screenshot(path=str(window.folder / "applied.png"))
    assert closed.read_text() == CALLS.replace("one =", "six =").replace("depth)", "depth, debug=True)")

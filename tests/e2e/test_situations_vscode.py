"""What happens to people while they type, in a real VS Code: a notebook, no file.

Each situation ends with the beginning of a name, which the server completes. Pictures stay in the test's folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode
from tests.lsp.test_situations import CODE

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

SETTINGS = {"editor.wordBasedSuggestions": "off", "editor.autoIndent": "none"}
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": text}
        for text in (CODE, "")
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 2,
}


@pytest.fixture(scope="module")
def first(browser: Any, extensions: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A window on one folder; VS Code takes many seconds to start."""
    folder = tmp_path_factory.mktemp("situations")
    work = folder / "work"
    work.mkdir()
    (work / "tea.ipynb").write_text(json.dumps(NOTEBOOK))
    (work / "kettle.py").write_text(CODE)
    with vscode(browser, extensions, folder, work, trusted=True) as open_window:
        yield open_window(CODE, SETTINGS)


def type_beginning(window: Window, begun: str, rest: str) -> None:
    """Type the beginning of a name; the ghost text is the rest of it."""
    for char in begun:
        window.type(char)

    def shown() -> bool:
        window.wait(1)
        if window.ghost.startswith(rest):
            return True
        window.press("Backspace")  # a slow machine may have answered too late
        window.type(begun[-1])
        return False

    window.until(f"{rest} is shown", shown)


def notebook(window: Window) -> None:
    """Type in the second cell of a notebook."""
    open_file(window, "tea.ipynb")
    cells = window.page.locator(".notebookOverlay .cell-editor-container .monaco-editor")
    cells.nth(1).wait_for()
    cells.nth(1).click()
    window.page.locator(".notebookOverlay .monaco-editor.focused").wait_for()
    type_beginning(window, "kettle.bo", "il_water")
    window.press("Escape", "Control+s")
    window.until("it is saved", lambda: not window.page.locator(".tab.dirty").count())


def untitled(window: Window) -> None:
    """Type in a document without a file."""
    window.press("Control+Alt+n")
    window.page.locator(".tab.active:has-text('Untitled-1')").wait_for()
    window.command("Change Language Mode")
    window.page.keyboard.type("Python")
    window.page.locator(".quick-input-list .monaco-list-row.focused", has_text="Python").wait_for()
    window.press("Enter")
    window.page.locator(".editor-instance .view-lines").first.click()
    window.page.keyboard.insert_text("def brew(kettle):\n    kettle.boil_water(60)\n")
    type_beginning(window, "    kettle.bo", "il_water")


def open_file(window: Window, name: str) -> None:
    """Open a file of the folder by the explorer."""
    window.page.locator(".explorer-folders-view .monaco-list-row", has_text=name).dblclick()
    window.page.locator(f".tab.active:has-text('{name}')").wait_for()


@pytest.mark.parametrize("situation", [notebook, untitled], ids=lambda one: one.__name__)
def test_names_are_completed_after(first: Window, situation: Callable[[Window], None]):
    if first.page.locator(".tab.active:has-text('storage.py')").count() == 0:
        open_file(first, "storage.py")
    first.page.locator(".editor-instance .view-lines").first.click()
    first.press("Escape", "Control+a")
    first.page.keyboard.insert_text(CODE)
    first.saved()
    try:
        situation(first)
    finally:
        first.page.screenshot(path=str(first.folder / f"{situation.__name__}.png"))
    first.press("Escape")

"""VS Code's stock list of words hides ghost text: it is said once, and one click mends it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.test_vscode_guide import expand, open_walkthrough
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

WORDS = "HooksInputType = HelpTextTopPart = 1\n"
LINE = "from .exceptions import HTTP"
DRAFT = {"text": "StatusError", "probability": 0.4, "behind": LINE}
MEND = "Show drafts instead"
TOAST = ".notification-toast"


@pytest.fixture
def window(browser: Any, extensions: Path, tmp_path: Path) -> Iterator[Window]:
    """A window with stock settings in which words were listed where there is a draft."""
    (tmp_path / "drafts.json").write_text(json.dumps([DRAFT]))
    command = [sys.executable, "-m", "tests.e2e.fixed_server", str(tmp_path / "drafts.json")]
    with vscode(browser, extensions, tmp_path) as open_window:
        window = open_window(WORDS, {"spd-lsp.serverCommand": command})
        window.until("words are listed", lambda: "HooksInputType" in type_line(window))
        assert not window.ghost
        yield window


def type_line(window: Window) -> list[str]:
    """Type it, once more; what is listed. VS Code begins to list words some time after its start."""
    window.press("Escape", "Shift+Home", "Delete")
    for char in LINE:
        window.type(char)
        window.wait(0.1)
    window.wait(2)
    return window.menu


def is_mended(window: Window) -> None:
    """The draft is shown while one types, and Tab takes it."""
    window.page.locator(".tab", has_text="storage.py").click()
    window.page.locator(".editor-instance .monaco-editor.focused").wait_for()
    assert type_line(window) == []
    window.until("the draft is shown", lambda: window.ghost == DRAFT["text"])
    window.page.screenshot(path=str(window.folder / "mended.png"))
    window.accept("Tab")
    assert window.saved() == f"{WORDS}{LINE}{DRAFT['text']}"


def test_it_is_said_and_one_click_shows_drafts_where_words_hid_them(window: Window):
    toast = window.page.locator(TOAST, has_text="words")
    toast.wait_for()
    window.page.screenshot(path=str(window.folder / "said.png"))
    toast.locator(".monaco-button", has_text=MEND).click()
    is_mended(window)


def test_it_is_said_once_and_then_whoever_asks_why_is_told(window: Window):
    toast = window.page.locator(TOAST, has_text="words")
    toast.wait_for()
    window.command("Notifications: Clear All Notifications")
    window.until("it is closed", lambda: not toast.count())
    window.page.locator(".editor-instance .view-lines").first.click()
    window.press("Control+End")
    assert "HooksInputType" in type_line(window)
    window.wait(3)
    assert not toast.count()
    window.press("Escape")  # as the notification says
    window.until("the draft is shown", lambda: window.ghost == DRAFT["text"])
    window.press("Control+k", "'")
    window.page.locator(TOAST, has_text="the last request had suggestions").wait_for()
    assert not toast.count()
    assert "HooksInputType" in type_line(window)
    window.press("Control+k", "'")
    toast.wait_for()
    window.wait(1)
    window.page.screenshot(path=str(window.folder / "why.png"))
    toast.locator(".monaco-button", has_text=MEND).click()
    is_mended(window)


def is_in_the_menu(window: Window) -> bool:
    """Whether the menu of the status bar offers it."""
    window.page.locator(".statusbar-item:has-text('spd')").click()
    window.page.locator(".quick-input-list .monaco-list-row", has_text="Show the log").wait_for()
    rows = window.texts(".quick-input-list .monaco-list-row")
    window.press("Escape")
    return any("Show drafts instead of words" in row for row in rows)


def test_the_walkthrough_mends_it_and_the_menu_offers_that_until_then(window: Window):
    assert is_in_the_menu(window)
    open_walkthrough(window)
    expand(window, "words").locator(".monaco-button", has_text="Show drafts instead of words").click()
    is_mended(window)
    assert not is_in_the_menu(window)

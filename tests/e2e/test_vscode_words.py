"""VS Code's stock list of words hides ghost text: it is said, and one click mends it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import EDITOR_ONLY, MISSING, Window, vscode

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
        window = open_window(WORDS, EDITOR_ONLY | {"spd-lsp.serverCommand": command}, device_scale_factor=1.5)
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
    window.picture("words.png")
    toast.locator(".monaco-button", has_text=MEND).click()
    is_mended(window)

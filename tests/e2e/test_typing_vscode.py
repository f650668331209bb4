"""What somebody types in a real VS Code with our extension and stock settings is what stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.typist import CODE, changed_lines, type_code
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]


def wait_for_model(window: Window) -> None:
    """Ask for the menu until our server's drafts are in it."""

    def own_rows() -> list[str]:
        window.press("Escape", "Control+Space")
        window.wait(1)
        return window.own_rows

    window.type("x")
    window.until("the menu has drafts", own_rows)
    window.press("Escape", "Backspace")
    window.until("the menu is closed", lambda: not window.menu)
    window.forget_rows()


def test_the_text_is_what_was_typed(browser: Any, extensions: Path, tmp_path: Path):
    """VS Code's own word list accepts items with Enter, too; ours is to have no part in that."""
    with vscode(browser, extensions, tmp_path) as open_window:
        window = open_window("", {})
        wait_for_model(window)
        type_code(window, CODE)
        assert window.own_rows == []
        assert changed_lines(CODE, window.saved()) == []

"""What somebody types in a real VS Code with our extension and stock settings is what stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW, second_server
from tests.e2e.typist import CODE, changed_lines, type_code
from tests.e2e.vscode import MISSING, Window, install, package_ours, package_second_server, vscode

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


@pytest.mark.parametrize("second", ["", "jedi"])
def test_the_text_is_what_was_typed(browser: Any, second: str, tmp_path: Path):
    """VS Code's own word list and other servers accept items with Enter, too; ours is to have no part in that."""
    if second and not second_server(second):
        pytest.skip(f"needs {second}; {HOW}")
    packages = [package_ours(tmp_path), *([package_second_server(tmp_path)] if second else [])]
    environment = {"SECOND_SERVER": json.dumps(second_server(second))} if second else {}
    extensions, folder = install(tmp_path, *packages), tmp_path / "run"
    folder.mkdir()
    with vscode(browser, extensions, folder, **environment) as open_window:
        window = open_window("", {})
        if second:
            window.page.locator(".statusbar-item:has-text('second server ready')").wait_for()
        wait_for_model(window)
        type_code(window, CODE)
        assert window.own_rows == []
        assert second or changed_lines(CODE, window.saved()) == []

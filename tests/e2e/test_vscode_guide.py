"""What a real VS Code offers to somebody new: a walkthrough whose buttons work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import EDITOR_ONLY, EXTENSION, MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

[WALKTHROUGH] = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))["contributes"]["walkthroughs"]
STEPS = {step["id"]: step for step in WALKTHROUGH["steps"]}
EXPANDED = ".getting-started-step.expanded"


@pytest.fixture
def window(browser: Any, extensions: Path, tmp_path: Path) -> Iterator[Window]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    with vscode(browser, extensions, tmp_path, workspace, trusted=True) as open_window:
        yield open_window("import json\n\n\njson.", EDITOR_ONLY, device_scale_factor=1.5)


def open_walkthrough(window: Window) -> None:
    window.command("Welcome: Open Walkthrough...")
    window.page.locator(".quick-input-list .monaco-list-row", has_text=WALKTHROUGH["title"]).click()
    window.page.locator(".gettingStartedDetailsContent", has_text=WALKTHROUGH["title"]).wait_for()


def expand(window: Window, step: str) -> Any:
    """Open a step of the walkthrough; return it."""
    row = window.page.locator(f'.getting-started-step[data-step-id$="#{step}"]')
    expanded = window.page.locator(f'{EXPANDED}[data-step-id$="#{step}"]')
    if not expanded.count():
        row.click()
    expanded.wait_for()
    return expanded


def test_the_buttons_of_the_walkthrough_do_what_they_say(window: Window):
    window.open_menu()
    window.press("Escape")
    open_walkthrough(window)
    done = window.page.locator(".getting-started-step:has(.complete)", has_text=STEPS["install"]["title"])
    done.wait_for()
    restart = window.page.locator(".quick-input-list .monaco-list-row", has_text="Restart the server")

    def open_menu() -> bool:
        """Whether the menu stays: VS Code closes it if it moves the focus to the step's tick after that."""
        expand(window, "menu").locator(".monaco-button", has_text="Open the menu").click()
        window.page.wait_for_timeout(2000)
        return bool(restart.is_visible())

    window.until("the menu is open", open_menu)
    window.press("Escape")
    expand(window, "index").locator(".monaco-button", has_text="Index the folder").click()
    window.page.locator(".notification-toast", has_text="indexed work (1 file)").wait_for()
    window.page.locator(".tab", has_text="storage.py").click()
    window.picture("index.png")

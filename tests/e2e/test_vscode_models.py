"""Choosing a model in a real VS Code: a file that is there, and one that is broken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import STARTER_FILE
from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

CODE = "import os\n\nprint(os."


def choose(window: Window, model: str) -> None:
    """Choose a model in the menu of the status bar."""
    window.choose("Choose the model")
    window.page.locator(".quick-input-list .monaco-list-row", has_text=model).click()


def completes_with(window: Window, model: str) -> None:
    """Wait until the extension says that this model completes, and have it do so."""

    def says_so() -> bool:
        label = window.page.locator('[id="spd-lsp.spd-lsp.status"]').get_attribute("aria-label")
        return f"model: {model}" in (label or "").replace("\\", "")  # as Markdown

    window.until(f"{model} completes", says_so)
    assert window.open_menu()
    window.press("Escape")


def test_a_model_of_this_machine_is_chosen_and_a_broken_one_leaves_it(
    browser: Any, extensions: Path, tmp_path: Path
):
    folder = tmp_path / "home/spd-lsp/models/me/coder-GGUF"
    folder.mkdir(parents=True)
    os.link(STARTER_FILE, folder / "coder-q8_0.gguf")
    (folder / "broken-q4_0.gguf").write_bytes(STARTER_FILE.read_bytes()[: 1 << 20])
    with vscode(browser, extensions, tmp_path) as open_window:
        window = open_window(CODE, {})
        completes_with(window, "starter")
        choose(window, "hf:me/coder-GGUF:q8_0")
        completes_with(window, "hf:me/coder-GGUF:q8_0")
        choose(window, "hf:me/coder-GGUF:q4_0")
        (error,) = window.until("the reason is shown", window.errors)
        assert "broken-q4_0.gguf" in error
        completes_with(window, "hf:me/coder-GGUF:q8_0")
        window.choose("Open the settings")  # of the machine: this is a remote window
        window.page.locator(".settings-editor .setting-item-label", has_text="Model").first.wait_for()
        window.page.screenshot(path=str(tmp_path / "settings.png"))

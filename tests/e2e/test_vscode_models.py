"""Choosing a model in a real VS Code: a file that is there, one that is broken, and one that has to be fetched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import STARTER_FILE
from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode
from tests.models.checkpoint.hub_server import running_hub

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


def test_a_recommended_model_is_fetched_once_it_is_not_cancelled(browser: Any, extensions: Path, tmp_path: Path):
    """From a server on this machine, which sends the tests' model under that name."""
    with running_hub() as hub:
        repository = "ibm-granite/granite-4.0-350m-base-GGUF"
        hub.add(f"{repository}/granite-4.0-350m-base-Q4_K_M.gguf", STARTER_FILE.read_bytes())
        hub.goes_on.clear()
        with vscode(browser, extensions, tmp_path, HF_ENDPOINT=hub.address) as open_window:
            window = open_window(CODE, {})
            choose(window, "granite-4.0-350m")
            progress = window.page.locator(".notification-list-item", has_text="granite-4.0-350m: downloading")
            window.until("half of it is there", lambda: hub.sent.is_set() and progress.count())
            progress.locator(".monaco-button", has_text="Cancel").dispatch_event("click")  # a tooltip covers it
            window.until("it has stopped", lambda: not progress.count())
            completes_with(window, "starter")
            hub.goes_on.set()
            choose(window, "granite-4.0-350m")
            completes_with(window, f"hf:{repository}:Q4_K_M")
            window.page.screenshot(path=str(tmp_path / "fetched.png"))

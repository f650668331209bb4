"""A real VS Code with our packaged extension and SmolLM2, a model that people use: what shows while one types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

KEY = 0.11  # seconds between keys
ABOVE = """import json


class Settings:
    def __init__(self, path):
        self.path = path
        self.values = {}
"""
# What somebody types who pauses behind each part, where the model knows more; the editor indents.
TYPED = """\
    def load(self):
        with open(self.path) as file:
            self.values = json."""
PARTS = ("    def load(self):\nwith open(", "self.path) as file:\n", "self.values = json.")


def test_ghost_text_shows_wherever_typing_pauses(browser: Any, extensions: Path, tmp_path: Path, smollm2: Path):
    with vscode(browser, extensions, tmp_path) as open_window_with:
        window = open_window_with(ABOVE, {"spd-lsp.model": str(smollm2)})
        window.open_menu()  # waits for the model to load; ghost text does not
        window.press("Escape", "Enter")
        for part in PARTS:
            for char in part:
                window.type(char)
                window.wait(KEY)
            ghost = window.until(f"ghost text is shown behind {part!r}", lambda: window.ghost)
            assert ghost == ghost.lstrip()
        window.accept("Tab")
        assert window.saved() == f"{ABOVE}\n{TYPED}{ghost}"

"""A model that takes a second for a completion, and someone who types on in a real VS Code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, vscode

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}"),
]

PASS_SECONDS = "0.25"
LINE = "with open(path) as file:"
TEXT = "".join(
    f"def load_{name}(path):\n    {LINE}\n        return json.load(file)\n\n\n" for name in ("all", "one")
)


def test_a_ghost_comes_after_a_pause_though_keys_went_on_while_it_was_computed(
    browser: Any, extensions: Path, tmp_path: Path
):
    record = tmp_path / "completions"
    command = [sys.executable, "-m", "tests.e2e.slow_server", PASS_SECONDS, str(record)]
    with vscode(browser, extensions, tmp_path) as open_window:
        window = open_window(f"{TEXT}def load_two(path):\n    ", {"spd-lsp.serverCommand": command})
        window.type("lo")
        window.open_menu()  # VS Code asks again while other extensions start
        window.press("Escape", "Backspace", "Backspace")
        window.until("nothing is shown", lambda: not window.menu and not window.ghost)
        record.unlink(missing_ok=True)
        typed = ""
        for char in "with ":
            window.type(char)
            window.wait(0.11)
            typed += char
        window.until("the rest is shown", lambda: window.ghost == LINE.removeprefix(typed))
        for char in "open":
            window.type(char)
            typed += char
            left = LINE.removeprefix(typed)
            window.until("what is left of it is shown", lambda left=left: window.ghost == left)
        assert record.read_text().count("\n") == 1, "what was computed for the first key was kept"

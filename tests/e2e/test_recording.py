"""The recording in the README: a small project in a real VS Code, typed key by key.

`SPD_LSP_PICTURE=1 pytest tests/e2e/test_recording.py` records it anew. A frame is taken after each key, once what
it brings is on the screen, and shown as long as people need to press or read: a slow machine records the same.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import EDITOR_ONLY, MISSING, ROOT, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

RECORDING = ROOT / "editors" / "vscode" / "typing.webp"
KEY, GLANCE, READ = 90, 900, 2200  # milliseconds
STOCK = '''class OutOfStock(Exception):
    """Fewer products are left than were ordered."""


def receive(stock: dict[str, int], product: str, count: int) -> None:
    stock[product] = stock.get(product, 0) + count


def take(stock: dict[str, int], product: str, count: int) -> None:
    left = stock.get(product, 0)
    if left < count:
        raise OutOfStock(product)
    stock[product] = left - count
'''
ORDERS = '''"""Orders of one customer."""

from stock import OutOfStock


def reserve(stock: dict[str, int], product: str, count: int):
    '''


class Recorder:
    """Frames and how long each is shown."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.frames: list[tuple[bytes, int]] = []

    def frame(self, milliseconds: int) -> None:
        """Add what is on the screen."""
        picture = self.window.page.screenshot()
        if self.frames and self.frames[-1][0] == picture:
            self.frames[-1] = picture, self.frames[-1][1] + milliseconds
        else:
            self.frames.append((picture, milliseconds))

    def press(self, key: str) -> None:
        """Press a key."""
        self.window.press(key)
        self.window.wait(0.3)
        self.frame(KEY)

    def type(self, text: str) -> None:
        """Type a text key by key."""
        for char in text:
            self.press(char)

    def save(self, path: Path) -> None:
        """Write an animation that repeats."""
        from PIL import Image

        pictures: list[Any] = [Image.open(io.BytesIO(picture)).convert("RGB") for picture, _ in self.frames]
        durations = [milliseconds for _, milliseconds in self.frames]
        pictures[0].save(
            path, save_all=True, append_images=pictures[1:], duration=durations, loop=0, quality=70, method=4
        )


def test_a_recording_shows_drafts_of_the_project(browser: Any, extensions: Path, tmp_path: Path):
    workspace = tmp_path / "shop"
    workspace.mkdir()
    (workspace / "stock.py").write_text(STOCK)
    with vscode(browser, extensions, tmp_path, workspace, trusted=True, SPD_LSP_STARTER="") as open_window_with:
        screen = {"viewport": {"width": 800, "height": 340}, "device_scale_factor": 1.25}
        settings = EDITOR_ONLY | {"editor.wordBasedSuggestions": "off"}  # as our extension proposes
        window = open_window_with(ORDERS, settings, name="orders.py", **screen)
        window.press("Control+b")  # hides the side bar
        window.until("the folder is indexed", lambda: list(tmp_path.glob("home/**/*.ngt")))
        window.command("Notifications: Clear All Notifications")
        film = Recorder(window)
        film.frame(GLANCE)
        # 1. A line of the project appears as ghost text, and Tab accepts it.
        film.type("left = stock.get(product, 0)\nif ")
        window.until("a draft is shown", lambda: window.ghost.startswith("left < count"))
        film.frame(READ)
        window.accept("Tab")
        film.frame(GLANCE)
        # 2. Keys go through the drafts.
        film.press("Enter")
        window.until("a copied line is shown", lambda: window.ghost.startswith("raise Out"))
        window.until("its number is shown", lambda: window.number[0] == "(1/3)")
        film.frame(READ)
        for number in ("(2/3)", "(3/3)", "(1/3)"):
            before = window.ghost
            window.press("Alt+]")
            window.until("the next draft is shown", lambda before=before: window.ghost not in ("", before))
            assert window.until("its number is shown", lambda: window.number[0]) == number
            film.frame(GLANCE)
        # 3. A list says how likely they are, and where one was copied from.
        window.press("Control+k", ".")
        rows = window.page.locator(".quick-input-list .monaco-list-row")
        rows.nth(2).wait_for()
        film.frame(READ)
        assert "stock.py:12" in rows.first.inner_text() and "%" in rows.nth(1).inner_text()
        window.accept("Enter")
        film.frame(READ)
        if os.environ.get("SPD_LSP_PICTURE"):
            film.save(RECORDING)

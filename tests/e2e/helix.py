"""Helix in a terminal whose screen a test can read, driven with real keys.

In: a text, and what else the user has configured. Out: the screen and the cursor. Uses our recipe for Helix.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.e2e.installed import HOW, program
from tests.processes import wait_until

HELIX = program("hx", "helix")
MISSING = "" if HELIX and find_spec("pyte") else f"needs Helix and Python's pyte; {HOW}"
RECIPE = Path(__file__).parents[2] / "editors" / "helix" / "languages.toml"
KEYS = {"Enter": "\r", "Backspace": "\x7f", "Delete": "\x1b[3~", "Escape": "\x1b", "Tab": "\t", "Ctrl+X": "\x18"}
LINES, COLUMNS = 40, 160

SECOND_SERVER = """
[language-server.second]
command = "{}"
args = {}
"""


class Helix:
    """Helix in a terminal whose screen a test can read."""

    def __init__(self, file: Path) -> None:
        import pyte

        self.screen = pyte.Screen(COLUMNS, LINES)
        self.screen.report_device_status = lambda *args, **kwargs: None  # pyte takes no private ones
        self.stream = pyte.ByteStream(self.screen)
        self.process, self.terminal = pty.fork()
        if not self.process:
            terminal = {"TERM": "xterm-256color", "LINES": str(LINES), "COLUMNS": str(COLUMNS)}
            os.execvpe(HELIX, [HELIX, str(file)], os.environ | terminal)

    @property
    def text(self) -> str:
        """Return the screen."""
        return "\n".join(self.screen.display)

    @property
    def cursor(self) -> tuple[int, int]:
        """Return line and column, from 0, from the status line."""
        self.wait(0)
        line, column = re.findall(r"(\d+):(\d+) *$", self.screen.display[-2])[0]
        return int(line) - 1, int(column) - 1

    def type(self, text: str) -> None:
        """Press the keys of characters."""
        os.write(self.terminal, text.encode())

    def press(self, *keys: str) -> None:
        """Press keys that have names; what follows Escape at once would be Alt with it."""
        for key in keys:
            self.type(KEYS[key])
            self.wait(0.5 if key == "Escape" else 0)

    @property
    def menu(self) -> list[str]:
        """Return the rows of our server in the menu below the first line: their kind is text."""
        rows = map(str.rstrip, self.screen.display[1:-2])
        return [row.removesuffix(" text").strip("~ ") for row in rows if row.endswith(" text")]

    def open_menu(self) -> list[str]:
        """Ask for the menu until it has rows of our server; return them."""

        def rows() -> list[str]:
            self.press("Ctrl+X")
            self.wait(1)
            return self.menu

        return list(wait_until("the menu has drafts", rows))

    def save(self) -> None:
        """Leave insert mode, where the first Escape may close the menu, and write the file."""
        self.press("Escape", "Escape")
        self.type(":w\r")
        wait_until("the file is written", lambda: (self.wait(0.1), "written" in self.text)[1])

    def wait(self, seconds: float) -> None:
        """Let it work, and read what it draws."""
        end = time.monotonic() + seconds
        while select.select([self.terminal], [], [], max(0.02, end - time.monotonic()))[0]:
            self.stream.feed(os.read(self.terminal, 65536))
            if time.monotonic() > end + 1:
                return

    def quit(self) -> None:
        """End it without saving."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.terminal)


@contextmanager
def helix(file: Path, text: str = "", *, closes: bool = True, second: Sequence[str] = ()) -> Iterator[Helix]:
    """Run Helix on a Python file, perhaps without closing brackets and beside another language server."""
    recipe = RECIPE.read_text(encoding="utf-8")
    if second:
        recipe = recipe.replace('servers = ["spd-lsp"]', 'servers = ["second", "spd-lsp"]')
        recipe += SECOND_SERVER.format(second[0], list(second[1:]))
    configuration = Path(os.environ["XDG_CONFIG_HOME"]) / "helix"
    configuration.mkdir(parents=True)
    (configuration / "languages.toml").write_text(recipe)
    (configuration / "config.toml").write_text("" if closes else "[editor]\nauto-pairs = false\n")
    file.write_text(text)
    editor = Helix(file)
    try:
        wait_until("the file is shown", lambda: (editor.wait(0.1), f"{file.name} " in editor.text)[1])
        yield editor
    finally:
        editor.quit()

"""Helix in a terminal, driven with real keys.

In: a text, and what else the user has configured. Out: the screen and the cursor. Uses our recipe for Helix.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.e2e.installed import HOW, program
from tests.e2e.terminal import Terminal
from tests.processes import wait_until

HELIX = program("hx", "helix")
MISSING = "" if HELIX and find_spec("pyte") else f"needs Helix and Python's pyte; {HOW}"
RECIPE = Path(__file__).parents[2] / "editors" / "helix" / "languages.toml"

SECOND_SERVER = """
[language-server.second]
command = "{}"
args = {}
"""


class Helix(Terminal):
    """Helix, and what its screen shows."""

    @property
    def cursor(self) -> tuple[int, int]:
        """Return line and column, from 0, from the status line."""
        self.wait(0)
        line, column = re.findall(r"(\d+):(\d+) *$", self.screen.display[-2])[0]
        return int(line) - 1, int(column) - 1

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
        wait_until("the file is written", lambda: self.shows("written"))


@contextmanager
def helix(file: Path, text: str = "", *, second: Sequence[str] = ()) -> Iterator[Helix]:
    """Run Helix on a Python file, perhaps beside another language server."""
    recipe = RECIPE.read_text(encoding="utf-8")
    if second:
        recipe = recipe.replace('servers = ["spd-lsp"]', 'servers = ["second", "spd-lsp"]')
        recipe += SECOND_SERVER.format(second[0], list(second[1:]))
    configuration = Path(os.environ["XDG_CONFIG_HOME"]) / "helix"
    configuration.mkdir(parents=True)
    (configuration / "languages.toml").write_text(recipe)
    file.write_text(text)
    editor = Helix([HELIX, str(file)])
    try:
        wait_until("the file is shown", lambda: editor.shows(f"{file.name} "))
        yield editor
    finally:
        editor.quit()

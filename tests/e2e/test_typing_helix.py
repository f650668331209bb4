"""What somebody types in a real Helix, with our recipe and stock settings, is what stands there."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, program, second_server
from tests.e2e.nvim import environment
from tests.e2e.typist import CASES, CODE, changed_lines, type_code
from tests.processes import wait_until

HELIX = program("hx", "helix")
RECIPE = Path(__file__).parents[2] / "editors" / "helix" / "languages.toml"
KEYS = {"Enter": "\r", "Backspace": "\x7f", "Delete": "\x1b[3~", "Escape": "\x1b", "Ctrl+X": "\x18"}
LINES, COLUMNS = 40, 100

SECOND_SERVER = """
[language-server.second]
command = "{}"
args = {}
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not HELIX or not find_spec("pyte"), reason=f"needs Helix and the Python package pyte; {HOW}"
    ),
]


class Helix:
    """Helix in a terminal whose screen a test can read."""

    def __init__(self, file: Path) -> None:
        import pyte

        self.screen = pyte.Screen(COLUMNS, LINES)
        self.screen.report_device_status = lambda *args, **kwargs: None  # pyte takes no private ones
        self.stream = pyte.ByteStream(self.screen)
        self.process, self.terminal = pty.fork()
        if not self.process:
            os.execvpe(HELIX, [HELIX, str(file)], os.environ | {"LINES": str(LINES), "COLUMNS": str(COLUMNS)})

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

    def press(self, key: str) -> None:
        """Press a key that has a name."""
        self.type(KEYS[key])

    def leave_insert_mode(self) -> None:
        """Close the menu if it is open; the next key is no part of an escape sequence."""
        for _ in range(2):
            self.press("Escape")
            self.wait(0.5)

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
def helix(folder: Path, *, closes: bool, second: list[str]) -> Iterator[Helix]:
    """Run Helix in insert mode on an empty Python file; our server's model is loaded."""
    recipe = RECIPE.read_text(encoding="utf-8")
    if second:
        recipe = recipe.replace('servers = ["spd-lsp"]', 'servers = ["second", "spd-lsp"]')
        recipe += SECOND_SERVER.format(second[0], second[1:])
    configuration = folder / "XDG_CONFIG_HOME" / "helix"
    configuration.mkdir(parents=True)
    (configuration / "languages.toml").write_text(recipe)
    (configuration / "config.toml").write_text("" if closes else "[editor]\nauto-pairs = false\n")
    (folder / "counter.py").touch()
    editor = Helix(folder / "counter.py")
    try:
        wait_until("the file is shown", lambda: (editor.wait(0.1), "counter.py" in editor.text)[1])
        editor.type("iretur")
        wait_until("the menu has drafts", lambda: has_drafts(editor))
        editor.leave_insert_mode()
        editor.type("%c")  # replace all
        yield editor
    finally:
        editor.quit()


def has_drafts(editor: Helix) -> bool:
    """Ask for the menu; return whether it has rows of our server, whose kind is text."""
    editor.press("Ctrl+X")
    editor.wait(1)
    return any(line.endswith(" text") for line in map(str.rstrip, editor.screen.display[1:-2]))


@pytest.mark.parametrize(("closes", "second"), CASES)
def test_the_text_is_what_was_typed(closes: bool, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if second and not second_server(second):
        pytest.skip(f"needs {second}; {HOW}")
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with helix(tmp_path, closes=closes, second=second_server(second) if second else []) as editor:
        typed = type_code(editor, CODE, closes=closes)
        editor.leave_insert_mode()
        editor.type(":w\r")
        file = tmp_path / "counter.py"
        wait_until("the file is written", lambda: (editor.wait(0.1), file.read_text().strip())[1])
        assert changed_lines(CODE, file.read_text()) == []
        assert typed.swallowed == []

"""A program in a terminal whose screen a test can read, driven with real keys.

In: a command. Out: its screen. Knows no editor.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Sequence

KEYS = {"Enter": "\r", "Backspace": "\x7f", "Delete": "\x1b[3~", "Escape": "\x1b", "Tab": "\t", "Ctrl+X": "\x18"}
LINES, COLUMNS = 40, 160


class Terminal:
    """A terminal in which one program runs."""

    def __init__(self, command: Sequence[str]) -> None:
        import pyte

        self.screen = pyte.Screen(COLUMNS, LINES)
        self.screen.report_device_status = lambda *args, **kwargs: None  # pyte takes no private ones
        self.stream = pyte.ByteStream(self.screen)
        self.process, self.terminal = pty.fork()
        if not self.process:
            terminal = {"TERM": "xterm-256color", "LINES": str(LINES), "COLUMNS": str(COLUMNS)}
            os.execvpe(command[0], [*command], os.environ | terminal)

    @property
    def text(self) -> str:
        """Return the screen."""
        return "\n".join(self.screen.display)

    def type(self, text: str) -> None:
        """Press the keys of characters."""
        os.write(self.terminal, text.encode())

    def press(self, *keys: str) -> None:
        """Press keys that have names; what follows Escape at once would be Alt with it."""
        for key in keys:
            self.type(KEYS[key])
            self.wait(0.5 if key == "Escape" else 0)

    def shows(self, text: str) -> bool:
        """Return whether the screen shows a text, once the program had a moment to draw it."""
        self.wait(0.1)
        return text in self.text

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

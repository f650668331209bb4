"""A person who types code key by key, at a person's pace, without a look at what the editor offers.

In: an editor's keyboard and cursor. Out: after which lines Enter began no new line, and which lines are not what
was typed. Knows nothing about completions or any one editor.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable
from typing import Protocol

# Ordinary code: words that begin longer ones before an Enter or a colon, dots, brackets and strings.
CODE = """\
import os
import json
from collections import deque

app = create_app()
app.config.get("DEBUG")
limits = {"max": 10, "min": [1, 2]}

class Counter:
    def __init__(self, name):
        self.name = name
        self.total = 0

    def reset(self):
        pass

    def add(self, value=1):
"""

_MAX_INDENTATION = 40
_PACE = 0.09, 0.15  # seconds a key
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}


class Keyboard(Protocol):
    """An editor in front of which somebody sits."""

    def type(self, char: str) -> None:
        """Press the key of a character."""

    def press(self, key: str) -> None:
        """Press `Enter`, `Backspace` or `Delete`."""

    def wait(self, seconds: float) -> None:
        """Let the editor work."""

    @property
    def cursor(self) -> tuple[int, int]:
        """Line and column, from 0, once the editor has handled all keys."""


def type_code(keyboard: Keyboard, code: str) -> list[str]:
    """Type a text where the editor adds closing brackets; return the lines after which Enter was pressed again."""
    swallowed, pace = [], random.Random(13)

    def after(press: Callable[[str], None], key: str) -> None:
        press(key)
        keyboard.wait(pace.uniform(*_PACE))

    for line in code.splitlines():
        for _ in range(_MAX_INDENTATION if line else 0):  # the editor has indented the line its own way
            wanted = len(line) - len(line.lstrip())
            column = keyboard.cursor[1]
            if column == wanted:
                break
            after(*(keyboard.press, "Backspace") if column > wanted else (keyboard.type, " "))
        for char in line.lstrip():
            after(keyboard.type, char)
        for _ in range(_left_open(line)):
            after(keyboard.press, "Delete")
        row = keyboard.cursor[0]
        after(keyboard.press, "Enter")
        if not _has_left(keyboard, row):
            swallowed.append(line.strip())
            after(keyboard.press, "Enter")
    return swallowed


def _has_left(keyboard: Keyboard, row: int) -> bool:
    """Return whether the cursor leaves a line; VS Code says so with a delay."""
    for _ in range(20):
        if keyboard.cursor[0] != row:
            return True
        keyboard.wait(0.1)
    return False


def _left_open(line: str) -> int:
    """Return how many brackets a line opens and does not close. Example: `settings = {` -> 1."""
    return max(0, sum(line.count(opened) - line.count(closed) for opened, closed in _CLOSED_BY.items()))


def changed_lines(wanted: str, actual: str) -> list[str]:
    """Return the lines that differ, with `-` before what was typed and `+` before what is there instead."""
    texts = [[line.rstrip() for line in text.rstrip().splitlines()] for text in (wanted, actual)]
    return [line for line in difflib.ndiff(*texts) if line[0] in "-+"]

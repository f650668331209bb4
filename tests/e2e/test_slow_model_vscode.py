"""A model that takes 300 ms or a second for a completion, and someone who types on in a real VS Code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}"),
]

KEY = 0.11
TEXT = """\
def load(path):
    with open(path) as file:
        return json.load(file)


def load_all(path):
    with open(path) as file:
        return json.load(file)


def load_one(path):
    """
LINE = "with open(path) as file:"


class Typist:
    """Types in the last line, and notes what is shown behind each key."""

    def __init__(self, window: Window, record: Path) -> None:
        self.window = window
        self.record = record
        self.typed = ""
        self.seen: list[tuple[str, str]] = []  # what was typed, and the ghost text then

    def type(self, text: str) -> None:
        """Type, and look just before each next key."""
        for char in text:
            self.window.type(char)
            self.typed += char
            self.window.wait(KEY)
            self.look()

    def look(self) -> str:
        """The ghost text that is there now."""
        self.seen.append((self.typed, self.window.ghost))
        return self.seen[-1][1]

    def rest(self, seconds: float) -> None:
        """Look now and then for so long."""
        for _ in range(round(seconds / KEY)):
            self.window.wait(KEY)
            self.look()

    def until_ghost(self) -> str:
        """Wait for a ghost text."""
        return str(self.window.until("a ghost text is shown", self.look))

    @property
    def computed(self) -> list[dict[str, Any]]:
        """The completions that were computed to the end."""
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []

    def wrong(self) -> list[tuple[str, str]]:
        """What was shown though it is not the rest of a draft for what had been typed until then, or before."""
        said = [
            (one["before"].rpartition("\n")[2].lstrip(), draft.partition("\n")[0])
            for one in self.computed
            for draft in one["drafts"]
        ]

        def is_right(typed: str, ghost: str) -> bool:
            shown = opened(typed + ghost.partition("\n")[0])
            return any(
                (typed.startswith(before) or before.startswith(typed))  # as if the menu's item were accepted
                and opened(before + draft).startswith(shown)
                for before, draft in said
            )

        def opened(text: str) -> str:  # what VS Code closes stands in its text already
            return text.replace(")", "")

        return [(typed, ghost) for typed, ghost in self.seen if ghost and not is_right(typed, ghost)]


@contextmanager
def typist(browser: Any, extensions: Path, folder: Path, pass_seconds: float) -> Iterator[Typist]:
    record = folder / "completions"
    command = [sys.executable, "-m", "tests.e2e.slow_server", str(pass_seconds), str(record)]
    with vscode(browser, extensions, folder) as open_window:
        window = open_window(TEXT, {"spd-lsp.serverCommand": command})
        window.type("lo")
        window.open_menu()  # VS Code asks again while other extensions start
        window.press("Escape", "Backspace", "Backspace")
        window.until("the menu is closed", lambda: not window.menu)
        window.until("nothing is computed", lambda: not window.ghost)
        record.unlink(missing_ok=True)
        yield Typist(window, record)


PASS_SECONDS = pytest.mark.parametrize("pass_seconds", [0.075, 0.25])  # 0.3 and 1 s for four passes


@PASS_SECONDS
def test_a_ghost_comes_after_a_pause_though_keys_went_on_while_it_was_computed(
    browser: Any, extensions: Path, tmp_path: Path, pass_seconds: float
):
    with typist(browser, extensions, tmp_path, pass_seconds) as user:
        user.type("with ")
        ghost = user.until_ghost()
        assert ghost == LINE.removeprefix(user.typed)
        for char in "open":
            user.type(char)
            assert user.until_ghost() == LINE.removeprefix(user.typed)
        for_this_line = [one for one in user.computed if "\n" not in one["before"].removeprefix(TEXT)]
        assert len(for_this_line) == 1, "what was computed for the first key was kept"
        user.type("(")
        user.window.until(
            "what is left ends before the bracket that VS Code has closed", lambda: user.look() == "path"
        )
        assert user.wrong() == []


@PASS_SECONDS
def test_a_late_ghost_that_is_wrong_is_never_shown(
    browser: Any, extensions: Path, tmp_path: Path, pass_seconds: float
):
    with typist(browser, extensions, tmp_path, pass_seconds) as user:
        user.type("without = ")
        user.rest(20 * pass_seconds)
        user.type("load(")
        user.rest(20 * pass_seconds)
        assert user.computed, "something was computed"
        assert user.wrong() == []

"""What a real VS Code shows of the drafts at one place: their order, how likely each is, and its source."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

DRAFTS = [
    {"text": "s = sorted(values, key=lambda value: value.price)", "probability": 0.48, "is_copy": True},
    {"text": " = load_all_prices_of_the_shop(values)", "probability": 0.2},
    {"text": "_of(values)", "probability": 0.06},
]
WRITTEN = [f"price{draft['text']}" for draft in DRAFTS]


@pytest.fixture(scope="module")
def opened(browser: Any, extensions: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A window in which these drafts are offered everywhere."""
    folder = tmp_path_factory.mktemp("drafts")
    (folder / "drafts.json").write_text(json.dumps(DRAFTS))
    command = [sys.executable, "-m", "tests.e2e.fixed_server", str(folder / "drafts.json")]
    with vscode(browser, extensions, folder) as open_window:
        settings = {"spd-lsp.serverCommand": command, "editor.wordBasedSuggestions": "off"}
        yield open_window("price", settings)


@pytest.fixture
def window(opened: Window) -> Window:
    """The same, with nothing but `price` in it: to open one takes many seconds."""
    opened.press("Escape", "Control+a", "Delete")
    opened.type("price")
    opened.press("Escape")
    return opened


def test_the_menu_is_in_the_order_of_the_probabilities(window: Window):
    labels = window.open_menu()
    window.page.screenshot(path=str(window.folder / "menu.png"))
    assert labels == [text if len(text) <= 40 else f"{text[:39]}…" for text in WRITTEN]
    rows = window.page.locator(".suggest-widget.visible .details-label")
    shown = [rows.nth(number) for number in range(len(DRAFTS))]
    assert [row.inner_text() for row in shown] == ["48 %", "20 %", "6 %"]
    assert not any(row.evaluate("it => it.scrollWidth > it.clientWidth") for row in shown), "cut off"


def test_a_key_right_behind_a_bracket_that_was_just_typed_lists_the_drafts(window: Window):
    window.press("Control+a", "Delete")
    window.type("add(")
    window.press("Control+Space")
    window.until("the menu lists drafts", lambda: len(window.menu) == len(DRAFTS))


def test_nothing_is_offered_while_typing_during_a_snooze_or_on_request_only(window: Window):
    window.open_menu()
    window.press("Escape", "Enter")
    window.until("ghost text is shown", lambda: window.ghost)
    for key, status in (("Shift+Period", "spd: snoozing 5 min"), ("Shift+Quote", "spd: on request")):
        window.press("Escape", "Control+k", key)
        window.until("it is quiet", lambda status=status: window.status == status)
        window.press("Enter")
        window.wait(3)
        assert not window.ghost
        assert window.open_menu(), "what is asked for is shown"
        window.press("Escape", "Control+k", key)
        window.until("it is no longer quiet", lambda status=status: window.status != status)
        window.press("Enter")
        window.until("ghost text is shown", lambda: window.ghost)


def listed(window: Window) -> list[str]:
    """Open the list of all drafts; return its rows."""
    window.press("Control+k", ".")
    window.page.locator(".quick-input-list .monaco-list-row").nth(1).wait_for()
    return [row.replace("\n", " ") for row in window.texts(".quick-input-list .monaco-list-row")]


def test_all_drafts_are_listed_with_their_number_and_one_is_inserted(window: Window):
    window.open_menu()
    window.press("Escape", "Enter")
    window.until("ghost text is shown", lambda: window.ghost)
    shown = listed(window)
    window.page.screenshot(path=str(window.folder / "drafts.png"))
    rows = [f"{number}. {one['text'].strip()}" for number, one in enumerate(DRAFTS, 1)]
    assert all(row.startswith(start) for row, start in zip(shown, rows, strict=True)), shown
    assert "48 % · copied" in shown[0] and "20 % · model" in shown[1]
    window.press("ArrowDown", "Enter")
    window.until("it is inserted", lambda: window.cursor == (1, len(DRAFTS[1]["text"])))
    assert window.saved() == f"price\n{DRAFTS[1]['text']}"

"""What stands at ghost text in a real VS Code: which of how many drafts it is, for as long as it is there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

TEXTS = ["s = sorted(values)", "s = set(values)", "s = sum(values)"]
DRAFTS = [{"text": text, "probability": 0.4 / (1 + rank)} for rank, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def opened(browser: Any, extensions: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    folder = tmp_path_factory.mktemp("ghost")
    offer(folder, DRAFTS)
    command = [sys.executable, "-m", "tests.e2e.fixed_server", str(folder / "drafts.json")]
    with vscode(browser, extensions, folder) as open_window:
        settings = {"spd-lsp.serverCommand": command, "editor.wordBasedSuggestions": "off"}
        window = open_window("price", settings)
        window.open_menu()  # waits for the model to load; ghost text does not
        yield window


@pytest.fixture
def window(opened: Window) -> Window:
    """The same, with nothing in it: to open one takes many seconds."""
    offer(opened.folder, DRAFTS)
    opened.press("Escape", "Control+a", "Delete")
    return opened


def offer(folder: Path, drafts: list[dict[str, Any]], behind: str = "price") -> None:
    """Have the server write these behind a text, and nothing elsewhere."""
    (folder / "drafts.json").write_text(json.dumps([draft | {"behind": behind} for draft in drafts]))


def show(window: Window, before: str = "price", after: str = "") -> None:
    """Type until the first of three drafts is shown with its number."""
    window.page.keyboard.insert_text(before[:-1] + after)
    window.press(*["ArrowLeft"] * len(after))
    window.type(before[-1])
    window.until("the number is shown", lambda: window.number[0] == "(1/3)")
    window.until("the draft is shown", lambda: window.ghost == TEXTS[0])


def test_the_number_stands_right_of_the_ghost_text_and_follows_the_draft_that_is_shown(window: Window):
    show(window)
    window.page.screenshot(path=str(window.folder / "first.png"))
    assert 0 < window.number[1] < 100
    for key, number, text in (("]", 2, TEXTS[1]), ("]", 3, TEXTS[2]), ("]", 1, TEXTS[0]), ("[", 3, TEXTS[2])):
        window.press(f"Alt+{key}")
        window.until("which one is shown is said", lambda number=number: window.number[0] == f"({number}/3)")
        window.until("that one is shown", lambda text=text: window.ghost == text)
    window.page.screenshot(path=str(window.folder / "last_one.png"))


def test_the_number_stays_while_one_types_along(window: Window):
    show(window)
    for char in "s = so":
        window.type(char)
        assert window.number[0], f"behind {char!r}"
    window.until("only one goes on so", lambda: window.number[0] == "")
    assert window.ghost == TEXTS[0].removeprefix("s = so")


def test_the_number_stands_behind_the_text_right_of_the_cursor_and_at_the_first_line_of_a_block(window: Window):
    show(window, "print(price", ")")
    window.page.screenshot(path=str(window.folder / "within.png"))
    assert 0 < window.number[1] < 100
    window.press("Escape", "Control+a", "Delete")
    offer(window.folder, [draft | {"text": f"{draft['text']}\ncosts = 2"} for draft in DRAFTS])
    show(window, "unit_price")  # the server remembers what it wrote behind the other
    window.page.screenshot(path=str(window.folder / "block.png"))
    assert window.ghost_below == "costs=2" and 0 < window.number[1] < 100


def leave(window: Window) -> None:
    """Go to another editor, and come back."""
    window.command("Create: New File...")
    window.page.locator(".quick-input-list .monaco-list-row", has_text="Text File").first.click()
    window.page.locator(".tab.active:has-text('Untitled')").wait_for()
    assert window.number[0] == ""
    window.page.locator(".tab", has_text="storage.py").click()


def forget(window: Window) -> None:
    """Go elsewhere, where VS Code hides ghost text and tells nobody, come back, and press Escape."""
    window.press("Control+Shift+e")
    window.until("the ghost text is gone", lambda: not window.ghost)
    window.press("Control+1", "Escape")


def other(window: Window) -> None:
    """Type what no draft says."""
    window.type("x")


def press(key: str) -> Callable[[Window], None]:
    return lambda window: window.press(key)


@pytest.mark.parametrize(
    ("does", "ends"),
    [
        (press("Escape"), "price"),
        (press("Tab"), f"price{TEXTS[0]}"),
        (press("ArrowUp"), "price"),
        (other, "pricex"),
        (leave, "price"),
        (forget, "price"),
    ],
    ids=["Escape", "Tab", "up", "other", "leave", "forget"],
)
def test_the_number_goes_with_the_ghost_text(window: Window, does: Callable[[Window], None], ends: str):
    show(window)
    does(window)
    window.until("the number is gone", lambda: window.number[0] == "")
    window.wait(1)
    assert (window.ghost, window.number[0]) == ("", "")
    assert window.saved() == ends

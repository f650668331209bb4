"""A real VS Code closes what one opens: what is accepted there with Tab and saved closes nothing again.

What is typed stands above already, so that the drafts copy it, with what closes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.completion.test_balance import imbalance
from tests.e2e.installed import HOW
from tests.e2e.test_typing_vscode import wait_for_model
from tests.e2e.vscode import MISSING, Window, vscode

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

SCRIPT = """\
export const add = (a: number, b: number) => {
  return a + b;
};

export class Cart {
  remove(id: string) {
    this.items.delete(id);
  }
}

describe('finds all', () => {
  it('finds one', () => {});
});

"""
TYPED = (  # a line ends with Enter
    "export const add = (a: number, b: number) => {\n",
    "export class Shop {\nremove(id: string) {\n",
    "describe('fi",
)


def type_and_accept(window: Window, text: str) -> None:
    """Type, wait for ghost text and for the block that may follow it, accept it."""
    for char in text:
        window.press("Enter") if char == "\n" else window.type(char)
        window.wait(0.05)
    window.until("ghost text is shown", lambda: not window.menu and window.ghost)
    window.wait(1)
    window.accept("Tab")


def test_what_the_editor_closed_is_closed_once(browser: Any, extensions: Path, tmp_path: Path):
    assert imbalance("typescript", SCRIPT) == 0
    with vscode(browser, extensions, tmp_path) as open_window:
        window = open_window(SCRIPT, {}, name="cart.ts")
        wait_for_model(window)
        for text in TYPED:
            type_and_accept(window, text)
            written = window.saved()
            assert imbalance("typescript", written) == 0, written
            window.press("Control+End", "Enter", "Enter")
        assert all("tsserver" in error for error in window.errors())  # npm's VS Code comes without one

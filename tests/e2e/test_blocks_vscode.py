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
COMPONENTS = """\
export function Header() {
  return (
    <h1 className="title">Shop</h1>
  );
}

export const Save = () => <button className="primary" onClick={save}>Save</button>;
export const Send = () => <button className="primary" onClick={send}>Send</button>;

"""
TYPED = {  # a line ends with Enter
    "cart.ts": (
        "typescript",
        SCRIPT,
        (
            "export const add = (a: number, b: number) => {\n",
            "export class Shop {\nremove(id: string) {\n",
            "describe('fi",
        ),
    ),
    "view.tsx": (
        "tsx",
        COMPONENTS,
        ("export function Header() {\nreturn (\n", 'export const Stop = () => <button className="'),
    ),
}


def type_and_accept(window: Window, text: str) -> None:
    """Type, wait for ghost text and for the block that may follow it, accept it."""
    for char in text:
        window.press("Enter") if char == "\n" else window.type(char)
        window.wait(0.05)
    window.until("ghost text is shown", lambda: not window.menu and window.ghost)
    window.wait(1)
    window.accept("Tab")


@pytest.mark.parametrize("name", TYPED)
def test_what_the_editor_closed_is_closed_once(browser: Any, extensions: Path, name: str, tmp_path: Path):
    language, above, texts = TYPED[name]
    assert imbalance(language, above) == 0
    with vscode(browser, extensions, tmp_path) as open_window:
        window = open_window(above, {}, name=name)
        wait_for_model(window)
        for text in texts:
            type_and_accept(window, text)
            written = window.saved()
            assert imbalance(language, written) == 0, written
            window.press("Control+End", "Enter", "Enter")
        assert all("tsserver" in error for error in window.errors())  # npm's VS Code comes without one

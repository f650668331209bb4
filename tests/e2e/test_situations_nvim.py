"""What happens to people while they type, in a real Neovim: rename, undo, no file, two of them on one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, neovims
from tests.e2e.nvim import READY, Neovim, environment, neovim
from tests.lsp.test_situations import CODE
from tests.processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not neovims(), reason=f"needs nvim; {HOW}")]


@pytest.fixture(params=neovims())
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    yield request.param


def offered(editor: Neovim, typed: str, name: str) -> list[str]:
    """What is offered behind what is typed at the end, once a name is."""

    def words() -> list[str]:
        editor("input", f"<Esc>G$A{typed}<C-x><C-o>")
        editor.wait(1)
        found = [item["word"] for item in editor.menu]
        if not any(word.startswith(name) for word in found):
            editor("input", "<C-e><Esc>u")
            return []
        return found

    return list(wait_until(f"{name} is offered", words))


def rename(editor: Neovim) -> None:
    """Replace a method's name everywhere."""
    editor("command", "%s/boil_water/heat_up/g")
    assert not [word for word in offered(editor, "    kettle.he", "heat_up") if "boil_water" in word]


def undo(editor: Neovim) -> None:
    """Type, undo and redo in a storm."""
    for _ in range(20):
        editor("input", "GAkettle.boil<Esc>u<C-r>u")
    wait_until("nothing is left of it", lambda: editor.text == CODE + "\n")
    offered(editor, "kettle.bo", "boil_water")


def untitled(editor: Neovim) -> None:
    """Type in a buffer without a file."""
    editor("command", "enew | set filetype=python")
    wait_until("the server is there", lambda: editor.lua(READY) == ["spd_lsp"])
    editor("buf_set_lines", 0, 0, -1, True, CODE.splitlines())
    offered(editor, "kettle.bo", "boil_water")


@pytest.mark.parametrize("situation", [rename, undo, untitled], ids=lambda one: one.__name__)
def test_names_are_completed_after(program: str, tmp_path: Path, situation: Callable[[Neovim], None]):
    with neovim(program, tmp_path, CODE + "\n") as editor:
        situation(editor)


def test_two_at_one_folder_share_its_table_and_each_completes(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shop = tmp_path / "shop"
    for folder in (".git", "inner"):
        (shop / folder).mkdir(parents=True)
    monkeypatch.chdir(shop)  # the root for a Neovim before 0.11
    with neovim(program, shop, CODE + "\n") as first, neovim(program, shop / "inner", CODE + "\n") as second:
        for editor in (first, second):
            offered(editor, "kettle.bo", "boil_water")
        wait_until("the folder has a table", lambda: list(tmp_path.rglob("*.ngt")))
    assert len(list(tmp_path.rglob("*.ngt"))) == 1

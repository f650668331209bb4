"""A real Neovim, old and new, with our recipe and the bundled model: drafts can be accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, neovims
from tests.e2e.nvim import Neovim, neovim
from tests.processes import wait_until

SOURCE = """import os


def read(path):
    with open(path) as file:
        return file.read()


def read_lines(path):
    with open(path) as file:
        return file.
"""

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not neovims(), reason=f"needs nvim; {HOW}")]


@pytest.fixture(params=neovims())
def nvim(request: pytest.FixtureRequest, tmp_path: Path, own_folders: None) -> Iterator[Neovim]:
    """Neovim with our configuration and a Python file; the model is loaded."""
    with neovim(request.param, tmp_path, SOURCE) as editor:
        yield editor


def test_a_draft_is_shown_on_request_and_accepted(nvim: Neovim):
    before = nvim.last_line
    nvim("input", "GA<C-x><C-o>")
    items = wait_until("the menu opens", lambda: nvim.menu)
    assert 1 <= len(items) <= 3
    assert all(re.match(r"(< )?\d+ %|model|name", item["menu"]) for item in items)
    nvim("input", "<C-y>")
    line = wait_until("the line grows", lambda: nvim.last_line != before and nvim.last_line)
    assert line == before + items[0]["word"]

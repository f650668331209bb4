"""What somebody types in a real Neovim, with our recipes as pasted, is what stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.installed import HOW, second_server
from tests.e2e.nvim import NVIM, neovim, version
from tests.e2e.typist import CODE, changed_lines, type_code

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        version(NVIM) < (0, 11), reason=f"needs Neovim 0.11, the first with an automatic menu; {HOW}"
    ),
]


@pytest.mark.parametrize("second", ["", "jedi"])
def test_the_text_is_what_was_typed(second: str, tmp_path: Path, own_folders: None):
    if second and not second_server(second):
        pytest.skip(f"needs {second}; {HOW}")
    beside = second_server(second) if second else []
    with neovim(NVIM, tmp_path, menu=True, closes=True, second=beside) as nvim:
        nvim("input", "i")
        swallowed = type_code(nvim, CODE)
        assert changed_lines(CODE, nvim.text) == []
        assert swallowed == []

"""What somebody types in a real Neovim, with our recipes as pasted, is what stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.installed import HOW, second_server
from tests.e2e.nvim import NVIM, neovim, version
from tests.e2e.typist import CASES, CODE, IS_FULL, changed_lines, type_code

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        version(NVIM) < (0, 11), reason=f"needs Neovim 0.11, the first with an automatic menu; {HOW}"
    ),
]


@pytest.mark.parametrize("menu", [True, False] if IS_FULL else [True])
@pytest.mark.parametrize(("closes", "second"), CASES)
def test_the_text_is_what_was_typed(closes: bool, second: str, menu: bool, tmp_path: Path, own_folders: None):
    if second and not second_server(second):
        pytest.skip(f"needs {second}; {HOW}")
    beside = second_server(second) if second else []
    with neovim(NVIM, tmp_path, menu=menu, closes=closes, second=beside) as nvim:
        nvim("input", "i")
        typed = type_code(nvim, CODE, closes=closes)
        assert changed_lines(CODE, nvim.text) == []
        assert typed.swallowed == []

"""sidekick.nvim, a plugin that shows next edits, in a real Neovim with our server.

`SPD_LSP_SIDEKICK` names a clone of https://github.com/folke/sidekick.nvim.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, neovims
from tests.e2e.nvim import READY, ROOT, Neovim, environment, version
from tests.processes import wait_until

SIDEKICK = os.environ.get("SPD_LSP_SIDEKICK", "")
NEWEST = next((program for program in neovims() if version(program) >= (0, 11)), "")
SOURCE = """def area(width, height):
    # the width counts
    if height:
        return width * height
    return 0
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not NEWEST, reason=f"needs nvim 0.11 or later; {HOW}"),
    pytest.mark.skipif(not SIDEKICK, reason="SPD_LSP_SIDEKICK does not name a clone of sidekick.nvim"),
]

INIT = f"""
vim.o.swapfile = false
vim.opt.runtimepath:append({json.dumps(str(ROOT / "editors" / "nvim"))})
vim.opt.runtimepath:append({json.dumps(SIDEKICK)})
require("spd_lsp").setup({{ keys = false, init_options = {{ nextEdits = true, model = "none" }} }})
require("sidekick.config").is_copilot = function(client)
  return client == "spd_lsp" or client.name == "spd_lsp"
end
require("sidekick").setup({{}})
"""


def test_a_renamed_parameter_is_marked_jumped_to_and_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "init.lua").write_text(INIT)
    (tmp_path / "shapes.py").write_text(SOURCE)
    editor = Neovim("-u", str(tmp_path / "init.lua"), str(tmp_path / "shapes.py"), program=NEWEST)
    try:
        wait_until("the server answers", lambda: editor.lua(READY) == ["spd_lsp"])
        editor("input", "gg0fwcwbreadth<Esc>")
        wait_until("sidekick shows an edit", lambda: editor.lua("return require('sidekick.nes').have()"))
        assert editor.cursor[0] == 0
        assert editor.lua("return require('sidekick').nes_jump_or_apply()")
        wait_until("the cursor is there", lambda: editor.cursor == (3, 15))
        assert editor.lua("return require('sidekick').nes_jump_or_apply()")
        expected = SOURCE.replace("(width", "(breadth").replace("return width", "return breadth")
        wait_until("it is applied", lambda: editor.text == expected)
        editor("input", "u")
        wait_until("it is undone", lambda: editor.text == expected.replace("return breadth", "return width"))
    finally:
        editor.quit()

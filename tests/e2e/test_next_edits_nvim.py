"""sidekick.nvim, a plugin that shows next edits, in a real Neovim with our server.

`SPD_LSP_SIDEKICK` names a clone of https://github.com/folke/sidekick.nvim.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, neovims
from tests.e2e.nvim import READY, ROOT, Neovim, version
from tests.processes import wait_until

SIDEKICK = os.environ.get("SPD_LSP_SIDEKICK", "")
NEWEST = next((program for program in neovims() if version(program) >= (0, 11)), "")
SOURCE = "".join(f"shape{n} = area({n}{n}, width, height)\n" for n in range(4))
AFTER_TWO = SOURCE.replace("height", "length", 2)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not NEWEST, reason=f"needs nvim 0.11 or later; {HOW}"),
    pytest.mark.skipif(not SIDEKICK, reason="SPD_LSP_SIDEKICK does not name a clone of sidekick.nvim"),
]

INIT = f"""
vim.o.swapfile = false
vim.opt.runtimepath:append({json.dumps(str(ROOT / "editors" / "nvim"))})
vim.opt.runtimepath:append({json.dumps(SIDEKICK)})
require("spd_lsp").setup({{ keys = false, init_options = {{ model = "none" }} }})
require("sidekick.config").is_copilot = function(client)
  return client == "spd_lsp" or client.name == "spd_lsp"
end
require("sidekick").setup({{}})
"""


def test_a_change_made_twice_is_marked_jumped_to_and_applied(tmp_path: Path, own_folders: None):
    (tmp_path / "init.lua").write_text(INIT)
    (tmp_path / "shapes.py").write_text(SOURCE)
    editor = Neovim("-u", str(tmp_path / "init.lua"), str(tmp_path / "shapes.py"), program=NEWEST)
    try:
        wait_until("the server answers", lambda: editor.lua(READY) == ["spd_lsp"])
        editor("input", "gg/height<CR>cwlength<Esc>n.")
        wait_until("sidekick shows an edit", lambda: editor.lua("return require('sidekick.nes').have()"))
        assert editor.text == AFTER_TWO
        assert editor.lua("return require('sidekick').nes_jump_or_apply()")
        wait_until("the cursor is there", lambda: editor.cursor == (2, SOURCE.index("height")))
        assert editor.lua("return require('sidekick').nes_jump_or_apply()")
        wait_until("it is applied", lambda: editor.text == SOURCE.replace("height", "length", 3))
        editor("input", "u")
        wait_until("it is undone", lambda: editor.text == AFTER_TWO)
    finally:
        editor.quit()

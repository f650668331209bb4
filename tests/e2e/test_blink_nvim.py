"""blink.cmp, a completion plugin, in a real Neovim with our server: its menu has our drafts, in our order.

`SPD_LSP_BLINK` names a clone of https://github.com/Saghen/blink.cmp.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, neovims
from tests.e2e.nvim import READY, ROOT, Neovim, version
from tests.processes import wait_until

BLINK = os.environ.get("SPD_LSP_BLINK", "")
NEWEST = next((program for program in neovims() if version(program) >= (0, 11)), "")
BEFORE = "import os\n\n\ndef names(path):\n    for name in "

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not NEWEST, reason=f"needs nvim 0.11 or later; {HOW}"),
    pytest.mark.skipif(not BLINK, reason="SPD_LSP_BLINK does not name a clone of blink.cmp"),
]

INIT = f"""
vim.o.swapfile = false
vim.opt.runtimepath:append({json.dumps(str(ROOT / "editors" / "nvim"))})
vim.opt.runtimepath:append({json.dumps(BLINK)})
require("blink.cmp").setup({{
  fuzzy = {{ implementation = "lua" }},
  keymap = {{ preset = "enter" }},
  completion = {{ list = {{ selection = {{ preselect = false }} }} }},
}})
require("spd_lsp").setup({{ keys = false, init_options = {{ automaticMenu = true }} }})
"""
MENU = """
if not require("blink.cmp").is_menu_visible() then return {} end
return vim.tbl_map(function(item)
  return { item.client_name or item.source_id, item.sortText or "", item.textEdit and item.textEdit.newText or "" }
end, require("blink.cmp.completion.list").items)
"""


@pytest.mark.parametrize("chooses", [True, False])
def test_drafts_are_listed_in_their_order_and_enter_takes_only_what_was_chosen(
    tmp_path: Path, own_folders: None, chooses: bool
):
    (tmp_path / "init.lua").write_text(INIT)
    (tmp_path / "names.py").write_text(BEFORE)
    editor = Neovim("-u", str(tmp_path / "init.lua"), str(tmp_path / "names.py"), program=NEWEST)

    def menu() -> list[list[str]]:
        """What is shown once the server has answered for all that was typed."""
        shown = [row for row in editor.lua(MENU) if row[0] == "spd_lsp"]
        return shown if shown and all(text.startswith("environ") for _, _, text in shown) else []

    try:
        wait_until("the server answers", lambda: editor.lua(READY) == ["spd_lsp"])
        editor("input", "GA")
        for char in "os.en":
            editor.type(char)
        shown = wait_until("drafts are shown", menu)
        assert [order for _, order, _ in shown] == [f"{number:04}" for number in range(len(shown))]
        inserted = "en\n    "  # Enter indents the new line
        if chooses:
            inserted = f"{shown[0][2]}\n"
            editor("input", "<C-n>")
            wait_until("the first is chosen", lambda: editor.text == f"{BEFORE}os.{inserted}")
        editor("input", "<CR>")
        wait_until("the menu is closed", lambda: not editor.lua(MENU))
        wait_until("it is inserted once", lambda: editor.text.startswith(f"{BEFORE}os.{inserted}"))
        assert chooses == (editor.cursor[0] == 4)
    finally:
        editor.quit()

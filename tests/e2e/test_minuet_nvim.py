"""minuet-ai.nvim completes from our server in real Neovim, as its own recipe for llama.cpp sets it up.

The plugin is not ours: SPD_LSP_MINUET names a checkout of github.com/milanglacier/minuet-ai.nvim.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, neovims
from tests.e2e.nvim import Neovim, version
from tests.e2e.test_llama_vim import SOURCE
from tests.http.http_server import run_server
from tests.processes import wait_until

MINUET = os.environ.get("SPD_LSP_MINUET", "")
NEWEST = next((program for program in neovims() if version(program) >= (0, 10)), "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not NEWEST, reason=f"needs nvim 0.10 or later; {HOW}"),
    pytest.mark.skipif(not shutil.which("curl"), reason="minuet asks with curl"),
    pytest.mark.skipif(not MINUET, reason="SPD_LSP_MINUET names no checkout of minuet-ai.nvim"),
]

INIT = """
vim.o.swapfile = false
vim.opt.runtimepath:append({plugin})
require("minuet").setup({{
  provider = "openai_fim_compatible",
  n_completions = 1,
  virtualtext = {{ auto_trigger_ft = {{ "python" }}, keymap = {{ accept = "<A-A>" }} }},
  provider_options = {{
    openai_fim_compatible = {{
      api_key = function() return vim.fn.readfile({token})[1] end,
      name = "spd-lsp",
      end_point = {url},
      model = "any",
    }},
  }},
}})
"""
SHOWN = """
local marks = vim.api.nvim_get_namespaces()["minuet.virtualtext"]
local found = marks and vim.api.nvim_buf_get_extmarks(0, marks, 0, -1, { details = true }) or {}
return found[1] and found[1][4].virt_text and found[1][4].virt_text[1][1] or ""
"""


def test_minuet_shows_and_accepts_a_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with run_server(tmp_path) as server:
        values = {"plugin": MINUET, "token": str(server.token_file), "url": f"{server.url}/v1/completions"}
        quoted = {name: json.dumps(value) for name, value in values.items()}
        (tmp_path / "init.lua").write_text(INIT.format(**quoted))
        (tmp_path / "reader.py").write_text(SOURCE)
        editor = Neovim("-u", str(tmp_path / "init.lua"), "reader.py", program=NEWEST)
        try:
            editor("input", "GA")
            editor("input", "t")
            shown = wait_until("a completion is shown", lambda: editor.lua(SHOWN))
            assert shown.startswith("tings(")
            editor("input", "<A-A>")
            wait_until("it is inserted", lambda: editor.last_line == f"    settings = read_set{shown}")
            assert server.metric('spd_lsp_requests_total{path="/v1/completions",status="200"}')
        finally:
            editor.quit()

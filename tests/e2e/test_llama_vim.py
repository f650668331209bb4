"""llama.vim, with its own settings but for address and key, completes from our server in real Neovim.

The plugin is not ours: SPD_LSP_LLAMA_VIM names a checkout of github.com/ggml-org/llama.vim.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nvim import NVIM, Neovim
from tests.http.http_server import HttpServer, run_server
from tests.processes import wait_until

PLUGIN = os.environ.get("SPD_LSP_LLAMA_VIM", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not NVIM, reason="Neovim is not installed"),
    pytest.mark.skipif(not PLUGIN, reason="SPD_LSP_LLAMA_VIM names no checkout of llama.vim"),
]

INIT = """
vim.o.swapfile = false
vim.g.llama_config = {{ endpoint_fim = "{url}/infill", api_key = "{token}" }}
vim.opt.runtimepath:append("{plugin}")
"""
SOURCE = """import argparse
import json

def read_settings(path):
    with open(path) as file:
        return json.load(file)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    arguments = parser.parse_args()
    settings = read_se"""
HINT = """
local marks = vim.api.nvim_get_namespaces().vt_fim
if not marks then return { "", "" } end
local found = vim.api.nvim_buf_get_extmarks(0, marks, 0, -1, { details = true })
for _, mark in ipairs(found) do
  local text = mark[4].virt_text
  if text then return { text[1][1], text[2] and text[2][1] or "" } end
end
return { "", "" }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    with run_server(tmp_path) as server:
        yield server


def test_llama_vim_warms_up_shows_and_accepts_a_completion(server: HttpServer, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "init.lua").write_text(INIT.format(url=server.url, token=server.token, plugin=PLUGIN))
    (tmp_path / "reader.py").write_text(SOURCE)
    editor = Neovim("-u", str(tmp_path / "init.lua"), "reader.py", program=NVIM)
    try:
        infill = 'spd_lsp_requests_total{path="/infill",status="200"}'
        wait_until("what is open was sent ahead", lambda: server.metric(infill))
        editor("input", "GA")
        editor("input", "t")
        text, told = wait_until("a completion is shown", lambda: [h for h in [editor.lua(HINT)] if h[0]])[0]
        assert text.startswith("tings(")  # Python's syntax, though the request names no file: `read_settings(...`
        assert "| p: " in told and " g: " in told  # what the plugin shows of the timings
        editor("input", "<Tab>")
        wait_until("it is inserted", lambda: editor.last_line == f"    settings = read_set{text}")
        assert not [line for line in server.log if "failed" in line]
    finally:
        editor.quit()

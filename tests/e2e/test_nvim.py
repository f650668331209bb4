"""A real Neovim with our configuration and the bundled model: drafts can be accepted."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.processes import TIMEOUT, wait_until

NVIM = shutil.which("nvim")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NVIM is None, reason="needs nvim on PATH, such as `apt-get install neovim`"),
]

ROOT = Path(__file__).parents[2]

INIT = """
vim.o.swapfile = false
vim.opt.runtimepath:append({plugin!r})
local command = {{ {python!r}, "-m", "spd_lsp", "serve", "--device", "cpu" }}
if vim.fn.has("nvim-0.11") == 1 then
  vim.lsp.config("spd_lsp", {{ cmd = command }})
  vim.lsp.enable("spd_lsp")
else
  require("spd_lsp").setup({{ cmd = command, init_options = {{ drafts = 2 }} }})
end
"""

STATUS = """
local responses = vim.lsp.buf_request_sync(0, "spd-lsp/status", vim.empty_dict(), 2000) or {}
for _, response in pairs(responses) do
  if response.result then return response.result end
end
return vim.empty_dict()
"""

SOURCE = "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return file.\n"


class Neovim:
    """An embedded Neovim, driven over its own RPC with real keys."""

    def __init__(self, *arguments: str) -> None:
        command = [str(NVIM), "--embed", "--headless", "-n", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.messages = msgpack.Unpacker(strict_map_key=False)
        self.ids = itertools.count()

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Call an API function and return its result."""
        assert self.process.stdin and self.process.stdout
        msg_id = next(self.ids)
        self.process.stdin.write(msgpack.packb([0, msg_id, f"nvim_{method}", arguments]))
        self.process.stdin.flush()
        while True:
            for kind, response_id, error, result in self.messages:
                assert (kind, response_id, error) == (1, msg_id, None)
                return result
            self.messages.feed(self.process.stdout.read1())  # type: ignore[union-attr]

    def lua(self, code: str) -> Any:
        """Run Lua code and return its result."""
        return self("exec_lua", code, [])

    @property
    def last_line(self) -> str:
        """Return the last line of the buffer."""
        return str(self("buf_get_lines", 0, -2, -1, True)[0])

    def quit(self) -> None:
        """Quit without saving."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(msgpack.packb([2, "nvim_command", ["qa!"]]))
        self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.stdout.close()


@pytest.fixture
def nvim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Neovim]:
    """Neovim with our configuration and a Python file; the model is loaded."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    init, file = tmp_path / "init.lua", tmp_path / "reader.py"
    init.write_text(INIT.format(plugin=str(ROOT / "editors" / "nvim"), python=sys.executable))
    file.write_text(SOURCE)
    editor = Neovim("-u", str(init), str(file))
    try:
        wait_until("the model is loaded", lambda: editor.lua(STATUS).get("kind") == "normal")
        yield editor
    finally:
        editor.quit()


def test_a_draft_is_shown_and_accepted(nvim: Neovim):
    before = nvim.last_line
    nvim("input", "GA<C-x><C-o>")
    items = wait_until("the menu opens", lambda: nvim("call_function", "complete_info", [])["items"])
    assert 1 <= len(items) <= 3
    assert all(item["menu"].startswith("spd") for item in items)
    nvim("input", "<C-y>")
    line = wait_until("the line grows", lambda: nvim.last_line != before and nvim.last_line)
    assert line == before + items[0]["word"]


def test_ghost_text_is_shown_and_accepted(nvim: Neovim):
    if not nvim("call_function", "has", ["nvim-0.12"]):
        pytest.skip("needs Neovim 0.12 for inline completion")
    before = nvim.last_line
    nvim.lua("vim.lsp.inline_completion.enable(true)")
    nvim("input", "GA")
    accept = "return vim.lsp.inline_completion.get()"
    wait_until("ghost text is accepted", lambda: nvim.lua(accept) and nvim.last_line != before)
    assert nvim.last_line.startswith(before)

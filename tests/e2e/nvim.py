"""Neovim without a screen, driven over its own RPC with real keys.

In: a configuration and a file. Out: the buffer and the menu. Knows our server's name and nothing else.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack

from tests.e2e.installed import neovims
from tests.processes import TIMEOUT, wait_until

ROOT = Path(__file__).parents[2]
NVIM = next(iter(neovims()), "")
KEYS = {"Enter": "<CR>", "Backspace": "<BS>", "Delete": "<Del>"}

# As plugins do: an opening bracket adds the closing one, and typing that one moves past it.
AUTO_CLOSE = """
for opening, closing in pairs({ ["("] = ")", ["["] = "]", ["{"] = "}" }) do
  vim.keymap.set("i", opening, opening .. closing .. "<Left>")
  vim.keymap.set("i", closing, function()
    local next = vim.fn.getline("."):sub(vim.fn.col("."), vim.fn.col("."))
    return next == closing and "<Right>" or closing
  end, { expr = true })
end
"""

SECOND_SERVER = """
vim.o.completeopt = "menuone,noselect,popup"
vim.lsp.config("second", {{ cmd = {{ {command} }}, filetypes = {{ "python" }} }})
vim.lsp.enable("second")
vim.api.nvim_create_autocmd("LspAttach", {{
  callback = function(event)
    vim.lsp.completion.enable(true, event.data.client_id, event.buf, {{ autotrigger = true }})
  end,
}})
"""

STATUS = """
local responses = vim.lsp.buf_request_sync(0, "spd-lsp/status", vim.empty_dict(), 2000) or {}
for _, response in pairs(responses) do
  if response.result then return response.result end
end
return vim.empty_dict()
"""

# The names of the servers that answer, ours only once its model is loaded.
READY = """
local names = {}
for _, client in pairs((vim.lsp.get_clients or vim.lsp.get_active_clients)()) do
  local function request(method, params)
    if vim.fn.has("nvim-0.11") == 1 then return client:request_sync(method, params, 2000, 0) end
    return client.request_sync(method, params, 2000, 0)
  end
  if client.initialized then
    local ours = client.name == "spd_lsp"
    local document = { textDocument = vim.lsp.util.make_text_document_params() }
    local response = ours and request("spd-lsp/status", vim.empty_dict())
      or not ours and request("textDocument/documentSymbol", document)
    if response and not (ours and response.result.kind == "loading") then table.insert(names, client.name) end
  end
end
return names
"""


class Neovim:
    """An embedded Neovim."""

    def __init__(self, *arguments: str, program: str = NVIM) -> None:
        command = [program, "--embed", "--headless", "-n", *arguments]
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
            for kind, *response in self.messages:
                if kind == 1:  # not one of a screen's notifications
                    assert response[:2] == [msg_id, None]
                    return response[2]
            answers = select.select([self.process.stdout], [], [], TIMEOUT)[0]
            read = os.read(self.process.stdout.fileno(), 65536) if answers else b""
            assert read, f"Neovim {'ended' if answers else 'waits for a key'}: {method}{arguments}"
            self.messages.feed(read)

    def lua(self, code: str) -> Any:
        """Run Lua code and return its result."""
        return self("exec_lua", code, [])

    def has(self, version: str) -> bool:
        """Return whether it is this version or a later one. Example: `0.12`."""
        return bool(self("call_function", "has", [f"nvim-{version}"]))

    @property
    def text(self) -> str:
        """Return the buffer."""
        return "".join(f"{line}\n" for line in self("buf_get_lines", 0, 0, -1, True))

    @property
    def last_line(self) -> str:
        """Return the last line of the buffer."""
        return str(self("buf_get_lines", 0, -2, -1, True)[0])

    @property
    def menu(self) -> list[dict[str, Any]]:
        """Return the items in the completion menu."""
        return list(self("call_function", "complete_info", [["items"]])["items"])

    @property
    def cursor(self) -> tuple[int, int]:
        """Return line and column, from 0."""
        line, column = self("win_get_cursor", 0)
        return line - 1, column

    def type(self, char: str) -> None:
        """Press the key of a character."""
        self("input", "<LT>" if char == "<" else char)

    def press(self, key: str) -> None:
        """Press a key that has a name."""
        self("input", KEYS[key])

    def wait(self, seconds: float) -> None:
        """Let it work."""
        time.sleep(seconds)

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


def version(program: str) -> tuple[int, int]:
    """Return the version of a Neovim, such as `(0, 12)`; `(0, 0)` if there is none."""
    if not program:
        return 0, 0
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = re.search(r"v(\d+)\.(\d+)", text).groups()  # type: ignore[union-attr]
    return int(major), int(minor)


def recipes() -> tuple[str, str]:
    """Return the configurations in editors/README.md: without and with a menu that opens while one types."""
    text = (ROOT / "editors" / "README.md").read_text(encoding="utf-8")
    plain, menu = re.findall(r"```lua\n(require\(\"spd_lsp\"\)\.setup.*?)```", text, flags=re.DOTALL)
    return plain, menu


@contextmanager
def neovim(
    program: str,
    folder: Path,
    text: str = "",
    *,
    menu: bool = False,
    closes: bool = False,
    second: Sequence[str] = (),
) -> Iterator[Neovim]:
    """Run a Neovim with a recipe of ours, perhaps beside another server; wait until the servers answer."""
    init, file = folder / "init.lua", folder / "counter.py"
    plugin = f"vim.opt.runtimepath:append({json.dumps(str(ROOT / 'editors' / 'nvim'))})"
    beside = SECOND_SERVER.format(command=", ".join(map(json.dumps, second))) if second else ""
    lines = ["vim.o.swapfile = false", plugin, beside, recipes()[menu], AUTO_CLOSE if closes else ""]
    init.write_text("\n".join(lines))
    file.write_text(text)
    editor = Neovim("-u", str(init), str(file), program=program)
    try:
        names = ["second", "spd_lsp"] if second else ["spd_lsp"]
        wait_until("the servers answer", lambda: sorted(editor.lua(READY)) == names)
        yield editor
    finally:
        editor.quit()


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which `spd-lsp` is this one and the user's folders lie below a folder."""
    names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {name: str(folder / name) for name in names} | {"PATH": path, "OMP_NUM_THREADS": "1"}

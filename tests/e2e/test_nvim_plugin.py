"""A real Neovim with the repository as its plugin: messages, commands, keys, help, and a server that crashes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ngram_builders.registry.registry import Registry
from tests.conftest import STARTER_FILE
from tests.e2e.installed import HOW, neovims
from tests.e2e.nvim import NVIM, STATUS, Neovim
from tests.lsp.test_blocks import SOURCE as BLOCK_BEGINS
from tests.lsp.test_server_live import ASKED, HABITS
from tests.processes import is_alive, wait_until

ROOT = Path(__file__).parents[2]
DOC = ROOT / "editors" / "nvim" / "doc"

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not neovims(), reason=f"needs nvim; {HOW}")]

# The repository is installed as people install it without a plugin manager: a link in a package folder.
INIT = """
vim.o.swapfile = false
told = {}
local notify = vim.notify
vim.notify = function(text, ...) -- Neovim's own go to :messages
  if vim.startswith(text, "spd-lsp:") then table.insert(told, text) else notify(text, ...) end
end
vim.cmd("packloadall")
require("spd_lsp").setup({ init_options = { drafts = 3, device = "cpu" } })
"""
# Plugin managers can load a plugin after the first file was opened.
LATE = INIT.replace("require(", "vim.defer_fn(function() require(") + "end, 200)\n"
# As lazy.nvim loads `{ dir = ..., main = "spd_lsp", opts = {} }`: it replaces 'runtimepath' and 'packpath',
# sources the plugin's own files, and sets up its module.
LAZY = f"""
vim.o.swapfile = false
told = {{}}
vim.go.loadplugins = false
if vim.loader then vim.loader.enable() end
vim.go.packpath = vim.env.VIMRUNTIME
local function is_own(path) return path == vim.env.VIMRUNTIME or vim.endswith(path, "/lib/nvim") end
vim.opt.runtimepath = vim.tbl_filter(is_own, vim.opt.runtimepath:get())
vim.opt.runtimepath:prepend({str(ROOT)!r})
for _, file in ipairs(vim.fn.glob({str(ROOT / "plugin")!r} .. "/**/*.{{vim,lua}}", false, true)) do
  vim.cmd("source " .. file)
end
require("spd_lsp").setup({{}})
"""
SHOWN = """
local marks = vim.api.nvim_create_namespace("nvim.lsp.inline_completion")
local mark = vim.api.nvim_buf_get_extmarks(0, marks, 0, -1, { details = true })[1]
return mark and mark[4].virt_text[1][1] or ""
"""
NUMBER = SHOWN.replace("virt_text[1][1]", "virt_text[2] and mark[4].virt_text[2][1]")
SOURCE = "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json."

Open = Callable[..., Neovim]


@pytest.fixture(params=neovims())
def open_neovim(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Each Neovim in a home of its own; by the end no server is left."""
    monkeypatch.chdir(tmp_path)  # before 0.11 the root of a file outside of repositories, which is indexed
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    package = tmp_path / "XDG_DATA_HOME" / "nvim" / "site" / "pack" / "spd" / "start"
    package.mkdir(parents=True)
    (package / "spd-lsp").symlink_to(ROOT)
    (tmp_path / "reader.py").write_text(SOURCE)
    opened: list[Neovim] = []

    def open_with(*, server: bool = True, file: str = "reader.py", init: str = INIT) -> Neovim:
        (tmp_path / "init.lua").write_text(init)
        monkeypatch.setenv(
            "PATH", os.pathsep.join([str(program(tmp_path).parent)] * server + ["/usr/bin", "/bin"])
        )
        arguments = ["-u", str(tmp_path / "init.lua"), str(tmp_path / file)]
        opened.append(editor := Neovim(*arguments, program=request.param))
        if init is LAZY and not editor.has("0.8"):
            pytest.skip("lazy.nvim needs Neovim 0.8")
        if server:
            wait_until("the model is loaded", lambda: editor.lua(STATUS).get("kind") == "normal")
        return editor

    yield open_with
    for editor in opened:
        editor.quit()
    for pid in started(tmp_path):
        wait_until("the server has ended with Neovim", lambda pid=pid: not is_alive(pid))


def program(folder: Path) -> Path:
    """An `spd-lsp` that records each start."""
    path = folder / "bin" / "spd-lsp"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"#!/bin/sh\nexport OMP_NUM_THREADS=1 PYTHONPATH='{ROOT}'\n"
        f'echo $$ >> {folder}/starts\n[ "$1" = serve ] && set -- serve -v\n'
        f'exec {sys.executable} -m spd_lsp "$@" 2>> {folder}/log\n'
    )
    path.chmod(0o755)
    return path


def started(folder: Path) -> list[int]:
    """The process ids of the servers, in the order of their start."""
    file = folder / "starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def text(editor: Neovim) -> str:
    return "\n".join(editor("buf_get_lines", 0, 0, -1, True))


@pytest.mark.parametrize("init", [INIT, LATE])
def test_the_user_is_told_once_that_the_server_is_not_installed(open_neovim: Open, init: str):
    editor = open_neovim(server=False, init=init)
    [message] = wait_until("a message is shown", lambda: editor.lua("return told"))
    assert "cannot find `spd-lsp`" in message and ":help spd-lsp-install" in message
    editor("command", "edit! other.py")
    editor("command", "checkhealth spd_lsp")
    assert "cannot find `spd-lsp`" in text(editor) and "no server is running" in text(editor)
    assert editor.lua("return #told") == 1


def test_the_program_is_found_where_the_readme_puts_it(open_neovim: Open, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    programs = tmp_path / ".venvs" / "spd-lsp" / "bin"
    programs.mkdir(parents=True)
    (programs / "spd-lsp").symlink_to(program(tmp_path))
    editor = open_neovim(server=False)
    wait_until("the model is loaded", lambda: editor.lua(STATUS).get("kind") == "normal")


def test_a_command_snoozes_and_ends_that(open_neovim: Open):
    editor = open_neovim()
    if not editor.has("0.12"):
        pytest.skip("needs Neovim 0.12 for inline completion")
    editor("input", ":SpdSnooze<CR>")
    wait_until("it snoozes", lambda: editor.lua(STATUS)["snoozing"])
    editor("input", "GA")
    wait_until("the server was asked", lambda: editor.lua(STATUS)["reason"] == "completions are snoozing")
    assert editor.lua(SHOWN) == ""
    editor("input", "<Esc>:SpdSnooze<CR>GA")
    wait_until("a draft is shown", lambda: editor.lua(SHOWN))


def test_health_and_status_tell_of_the_running_server(open_neovim: Open, tmp_path: Path):
    editor = open_neovim()
    editor("command", "SpdStatus")
    [message] = wait_until("the status is shown", lambda: editor.lua("return told"))
    assert message.startswith("spd-lsp: the model is ready (normal)")
    editor("command", "checkhealth spd_lsp")
    assert f"the server's program is {tmp_path}/bin/spd-lsp" in text(editor)
    assert "the model is ready (normal)" in text(editor)
    assert "no completions in this file" not in text(editor)  # this is the report's own buffer


def test_the_model_reads_where_the_cursor_rests(open_neovim: Open, tmp_path: Path):
    def read() -> list[int]:
        lines = (tmp_path / "log").read_text().splitlines()
        return [int(line.split(" prompt tokens read")[0].split()[-1]) for line in lines if "prefetch: " in line]

    editor = open_neovim()
    if not editor.has("0.11"):
        pytest.skip("before Neovim 0.11 the cursor is not followed")
    editor("command", "normal! G$")
    wait_until("the prompt there is read", lambda: sum(read()) > 20)


def test_lazy_nvim_finds_all_parts_in_the_clone(open_neovim: Open):
    editor = open_neovim(init=LAZY)
    assert editor("call_function", "exists", [":SpdBuild"]) == 2
    assert editor("call_function", "exists", [":SpdStatus"]) == 2
    if editor.has("0.12"):
        assert "spd-lsp" in editor.lua("return vim.fn.maparg('<Tab>', 'i', false, true).desc or ''")
    editor("command", "help spd-lsp-keys")
    assert text(editor).startswith("*spd-lsp.txt*")
    editor("command", "checkhealth spd_lsp")
    assert "the model is ready (normal)" in text(editor)


def test_a_server_that_crashes_is_started_again(open_neovim: Open, tmp_path: Path):
    editor = open_neovim()
    for crashes in (1, 2):
        os.kill(started(tmp_path)[-1], signal.SIGKILL)
        wait_until("there is another server", lambda crashes=crashes: len(started(tmp_path)) == crashes + 1)
        wait_until("it answers", lambda: editor.lua(STATUS).get("kind") == "normal")
    assert editor.lua("return told") == [
        "spd-lsp: the server ended unexpectedly; it is started again. :checkhealth spd_lsp may say why"
    ]


def test_keys_accept_a_draft_a_word_and_show_the_next(open_neovim: Open):
    editor = open_neovim()
    if not editor("call_function", "has", ["nvim-0.12"]):
        pytest.skip("needs Neovim 0.12 for inline completion")
    before = editor.last_line
    shown = SHOWN
    editor("input", "GA")
    first = wait_until("a draft is shown", lambda: editor.lua(shown))
    wait_until("how many there are is shown", lambda: editor.lua(NUMBER) == " (1/3)")
    editor("input", "<M-]>")
    wait_until("the next draft is shown", lambda: editor.lua(shown) not in ("", first))
    assert editor.lua(NUMBER) == " (2/3)"
    editor("input", "<M-[>")
    wait_until("the first draft is shown", lambda: editor.lua(shown) == first)
    editor("input", "<M-Right>")
    wait_until("a word is inserted", lambda: editor.last_line != before)
    word = editor.last_line.removeprefix(before)
    assert first.startswith(word) and word.isidentifier()
    rest = wait_until("the rest is shown", lambda: editor.lua(shown))
    editor("input", "<Tab>")
    wait_until("the rest is inserted", lambda: editor.last_line == before + word + rest)
    wait_until("it is counted", lambda: editor.lua(STATUS)["usage"].startswith("1 accepted"))
    editor("input", "<Esc>:enew!<CR>i<Tab>")
    wait_until("without a draft, Tab is Tab", lambda: editor.last_line == "\t")


def test_drafts_are_numbered_without_setup(open_neovim: Open):
    plain = """if vim.lsp.inline_completion then
      vim.lsp.enable("spd_lsp")
      vim.lsp.inline_completion.enable()
    else require"""
    editor = open_neovim(init=INIT.replace("require", plain) + "end")
    if not editor.has("0.12"):
        pytest.skip("needs Neovim 0.12 for inline completion")
    editor("input", "GA")
    wait_until("how many there are is shown", lambda: editor.lua(NUMBER) == " (1/3)")


def test_a_block_is_shown_once_it_is_written_and_accepted_with_one_key(open_neovim: Open, tmp_path: Path):
    (tmp_path / "points.py").write_text(BLOCK_BEGINS)
    editor = open_neovim(file="points.py")
    if not editor.has("0.12"):
        pytest.skip("needs Neovim 0.12 for inline completion")
    editor("input", "GA")
    below = (
        "local marks = vim.api.nvim_create_namespace('nvim.lsp.inline_completion')\n"
        "local mark = vim.api.nvim_buf_get_extmarks(0, marks, 0, -1, { details = true })[1]\n"
        "return mark and mark[4].virt_lines and mark[4].virt_lines[1][1][1] or ''"
    )
    second = wait_until("the block is shown", lambda: editor.lua(below))
    editor("input", "<Tab>")
    wait_until("it is inserted", lambda: editor.last_line == second)
    assert text(editor).startswith(f"{BLOCK_BEGINS}self.") and second.startswith("        self.")


def test_all_drafts_are_listed_and_the_chosen_one_is_inserted(open_neovim: Open):
    editor = open_neovim()
    before = editor.last_line
    editor.lua("""vim.ui.select = function(items, options, choose)
      shown = vim.tbl_map(options.format_item, items)
      chosen = items[2].text
      choose(items[2])
    end""")
    editor("input", "G$:SpdDrafts<CR>")
    shown = wait_until("the drafts are listed", lambda: editor.lua("return shown"))
    assert len(shown) == 3 and all(re.search(r"\(.*(model|copied|name).*\)$", row) for row in shown), shown
    wait_until("it is inserted", lambda: editor.last_line == before + editor.lua("return chosen"))


def test_who_chooses_no_draft_is_in_normal_mode_where_they_were(open_neovim: Open):
    editor = open_neovim()
    editor.lua("vim.ui.select = function(items, options, choose) choose(nil); dismissed = true end")
    editor("input", "G$")
    before = editor.lua("return vim.api.nvim_win_get_cursor(0)")
    editor("input", ":SpdDrafts<CR>")
    wait_until("the list is dismissed", lambda: editor.lua("return dismissed"))
    wait_until("it is normal mode", lambda: editor("get_mode")["mode"] == "n")
    wait_until("the cursor is there", lambda: editor.lua("return vim.api.nvim_win_get_cursor(0)") == before)


def test_the_help_is_found_and_its_tags_are_current(open_neovim: Open, tmp_path: Path):
    editor = open_neovim(server=False)
    for tag in ("spd-lsp", "spd-lsp-keys", ":SpdBuild"):
        editor("command", f"help {tag}")
        assert text(editor).startswith("*spd-lsp.txt*")
    shutil.copytree(DOC, tmp_path / "doc", ignore=shutil.ignore_patterns("tags"))
    subprocess.run([str(NVIM), "--headless", "-u", "NONE", f"+helptags {tmp_path}/doc", "+qa"], check=True)
    assert (tmp_path / "doc" / "tags").read_text() == (DOC / "tags").read_text()


def test_opening_a_project_is_enough_for_its_names(open_neovim: Open, tmp_path: Path):
    """The table is built in the background, and the user is told once."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    (tmp_path / "shop" / "habits.py").write_text(HABITS)
    (tmp_path / "shop" / "asked.py").write_text(ASKED)
    editor = open_neovim(file="shop/asked.py")
    wait_until("the names are offered", lambda: any("quench" in item for item in offered(editor)))
    shown = "spd-lsp: indexed shop (2 files)"
    wait_until("the user is told", lambda: shown in editor("exec", "messages", True))
    tables = Registry(tmp_path / "XDG_DATA_HOME" / "spd-lsp" / "ngrams").tables()
    assert [(table.name, table.roots) for table in tables] == [("shop", (tmp_path / "shop",))]


def offered(editor: Neovim) -> list[str]:
    """Return what is offered at the end of the file."""
    editor("command", "normal! G$")
    items = editor.lua(
        "local params = vim.lsp.util.make_position_params(0, 'utf-16')\n"
        "params.position.character = params.position.character + 1\n"
        "local answer = vim.lsp.buf_request_sync(0, 'textDocument/completion', params, 5000) or {}\n"
        "local _, first = next(answer)\n"
        "return first and first.result and first.result.items or {}"
    )
    return [item["textEdit"]["newText"] for item in items]


def test_a_model_is_chosen_and_a_broken_one_leaves_it(open_neovim: Open, tmp_path: Path):
    os.link(STARTER_FILE, tmp_path / "mine.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(1000))
    editor = open_neovim()
    editor("command", "lua vim.ui.select = function(items, _, choose) choose(items[1]) end")
    for command, said in (
        ("SpdModel", "completing with starter. To keep it: "),
        (f"SpdModel {tmp_path}/mine.gguf", f"completing with {tmp_path}/mine.gguf"),
        (f"SpdModel {tmp_path}/broken.gguf", "`spd-lsp models` ended with status 1"),  # its reason is in the log
    ):
        editor("command", command)
        wait_until(f"it says {said}", lambda said=said: said in str(editor.lua("return told[#told]")))
    assert "llama.cpp cannot open" in (tmp_path / "log").read_text()
    wait_until("the model completes", lambda: editor.lua(STATUS).get("kind") == "normal")
    assert editor.lua(STATUS)["model"] == f"{tmp_path}/mine.gguf"

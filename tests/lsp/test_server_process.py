"""The server as a separate process: its stdout, how it exits, and how much it offers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.lsp.lsp_client import Editor, at
from tests.processes import TIMEOUT

ROOT = Path(__file__).parents[2]
COMPLETION = "textDocument/completion"

# A loader that prints wherever it can, and a completer that never ends by itself.
NOISY = """
import os, sys
from spd_lsp.lsp.transport import serve as listening
from spd_lsp.lsp import server
from tests.lsp.lsp_client import FakeCompleter

class Noisy(FakeCompleter):
    def complete(self, *question, **rest):
        print("code on stdout", flush=True)
        os.write(2, b"decoding" + bytes([10]))
        super().complete(*question, **rest)

def load(settings, report):
    print("noise", flush=True)
    os.write(1, b"raw noise")
    os.system("echo noise of a child")
    return Noisy(steps=10**9)

made = server.create_server(load)
sys.exit(listening.serve_stdio(made, verbose=2))
"""


@asynccontextmanager
async def process(
    *arguments: str, program: str = sys.executable, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Editor]]:
    """A server process and an editor at its pipes."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    child = await asyncio.create_subprocess_exec(program, *arguments, cwd=cwd, env=env, **pipes)
    assert child.stdin and child.stdout
    editor = Editor(child.stdout, child.stdin)
    try:
        yield child, editor
    finally:
        editor.listening.cancel()
        if child.returncode is None:
            child.kill()
        await child.communicate()


@asynccontextmanager
async def serving(
    data: Path, *options: str, capabilities: Any = None, **more: Any
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Editor]]:
    """A server with the bundled model, whose data are in a folder, and an editor once the model is loaded."""
    command = ("-m", "spd_lsp", "--data-dir", str(data), "serve", "--device", "cpu", *options)
    async with process(*command) as (child, editor):
        await editor.start_and_load(capabilities, **more)
        yield child, editor


async def end(child: asyncio.subprocess.Process) -> int:
    return await asyncio.wait_for(child.wait(), TIMEOUT)


async def decoding(child: asyncio.subprocess.Process, editor: Editor) -> str:
    """Wait until the endless completer runs; what was on stderr so far."""
    await editor.start_and_load()
    editor.open("secret = \n")
    editor.send_request(COMPLETION, at(0, 9))
    assert child.stderr
    return (await asyncio.wait_for(child.stderr.readuntil(b"decoding"), TIMEOUT)).decode()


async def test_only_the_protocol_is_on_stdout_and_no_code_in_the_log():
    async with process("-c", NOISY) as (child, editor):
        told = await decoding(child, editor)
        assert "noise" in told and "raw noise" in told and "noise of a child" in told
        assert (await editor.status())["busy"] is True  # every frame so far was well formed
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0
        assert child.stderr
        assert "secret" not in told + (await child.stderr.read()).decode()


async def test_the_end_of_input_ends_the_server_in_the_middle_of_a_decode():
    async with process("-c", NOISY) as (child, editor):
        await decoding(child, editor)
        assert child.stdin
        child.stdin.close()
        assert await end(child) == 1
        assert child.stderr
        assert "Traceback" not in (await child.stderr.read()).decode()


async def test_one_line_at_most_is_offered_where_the_user_wants_no_more(tmp_path: Path):
    source = (
        "def load(path):\n    with open(path) as file:\n        return json.load(file)\n\n\ndef read(path):\n    "
    )
    place = {"textDocument": at(6, 4)["textDocument"], "position": at(6, 4)["position"]}
    async with serving(tmp_path) as (_, editor):
        editor.open(source)
        for options, blocks in (({}, True), ({"oneLine": True}, False)):
            editor.notify("spd-lsp/options", options)
            drafts = await editor.request("spd-lsp/drafts", place)
            assert drafts and any("\n" in draft["text"] for draft in drafts) is blocks

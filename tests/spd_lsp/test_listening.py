"""Many editors at one server: each has its own session, they share the model, and none can disturb another."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.listening import SharedModel
from spd_lsp.settings import UserError
from tests.spd_lsp.engine.networks import FAST, random_network
from tests.spd_lsp.lsp_client import PATIENCE, Editor

ROOT = Path(__file__).parents[2]
COMPLETION = "textDocument/completion"
CODE = "import argparse\n\nparser = argparse."


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """A server with the starter."""
    number = free_port()
    data = str(tmp_path_factory.mktemp("data"))
    command = [sys.executable, "-m", "spd_lsp", "--data-dir", data, "serve", "--tcp", f"127.0.0.1:{number}", "-v"]
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert child.stderr
    assert b"spd-lsp connect 127.0.0.1" in child.stderr.readline()
    rest = threading.Thread(target=child.stderr.read)
    rest.start()
    yield number
    assert child.poll() is None, "nothing that an editor did has ended it"
    child.kill()
    child.wait()
    rest.join()
    child.stderr.close()


@asynccontextmanager
async def editor_at(port: int, **options: object) -> AsyncIterator[Editor]:
    """An editor in a session."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            ends = await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
    editor = Editor(*ends)
    await editor.start(initializationOptions=options)
    await editor.ready()
    yield editor
    editor.listening.cancel()
    editor.writer.close()


async def labels(editor: Editor, uri: str, line: int, character: int) -> list[str]:
    where = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
    found = await editor.request(COMPLETION, {**where, "context": {"triggerKind": 1}})
    return [item["label"] for item in found["items"]]


async def test_editors_complete_at_the_same_time_and_as_one_alone_would(port):
    async with editor_at(port) as alone:
        alone.open(CODE, "file:///a/alone.py")
        expected = await labels(alone, "file:///a/alone.py", 2, 18)
    assert len(expected) == 3

    async def one(number: int) -> list[str]:
        async with editor_at(port) as editor:
            uri = f"file:///b/{number}.py"
            editor.open(CODE, uri)
            return await labels(editor, uri, 2, 18)

    assert await asyncio.gather(*map(one, range(5))) == [expected] * 5


async def test_one_editors_documents_are_not_anothers(port):
    async with editor_at(port) as one, editor_at(port) as other:
        one.open("very_private_name = 1\n" * 50 + "very_pri", "file:///x.py")
        other.open("very_pri", "file:///x.py")
        assert any("vate_name" in label for label in await labels(one, "file:///x.py", 50, 8))
        assert not any("vate_name" in label for label in await labels(other, "file:///x.py", 0, 8))


async def test_an_editor_that_exits_or_breaks_off_ends_its_own_session_only(port):
    async with editor_at(port) as stays:
        stays.open(CODE, "file:///s.py")
        async with editor_at(port) as exits:
            await exits.request("shutdown")
            exits.notify("exit")
            await asyncio.wait_for(exits.listening, PATIENCE)
        async with editor_at(port) as vanishes:
            vanishes.open(CODE, "file:///v.py")
            vanishes.ask(
                COMPLETION, {"textDocument": {"uri": "file:///v.py"}, "position": {"line": 2, "character": 18}}
            )
            vanishes.writer.transport.abort()
        async with editor_at(port) as babbles:
            babbles.writer.write(b"Content-Length: 9\r\n\r\nnot json!")
            await babbles.status()
        assert len(await labels(stays, "file:///s.py", 2, 18)) == 3


# A completer that never ends by itself, at a port.
ENDLESS = """
import sys, time
from spd_lsp import listening, server

class Endless:
    def hear(self, news, asked=""):
        pass

    def tidy(self, seconds):
        return False

    def complete(self, *question, name, forced, check):
        while True:
            check()
            time.sleep(0.001)

make = lambda: server.create_server(lambda settings, report: Endless())
listening.serve_tcp(make, "127.0.0.1", int(sys.argv[1]))
"""


async def test_an_editor_that_vanishes_while_many_answers_are_due_leaves_no_noise():
    number = free_port()
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", ENDLESS, str(number), cwd=ROOT, stderr=pipe)
    async with editor_at(number) as vanishes:
        for n in range(20):
            uri = f"file:///{n}.py"
            vanishes.open(CODE, uri)
            vanishes.ask(
                COMPLETION,
                {"textDocument": {"uri": uri}, "position": {"line": 2, "character": 18}},
            )
        await vanishes.status()
        vanishes.writer.transport.abort()
    async with editor_at(number) as other:
        await other.status()
    child.kill()
    _, told = await child.communicate()
    assert told.decode() == ""


async def test_an_editor_elsewhere_cannot_choose_the_model_or_a_folder(port):
    async with editor_at(port, model="/no/such/model", dataDir="/no/such/folder") as editor:
        assert (await editor.status())["kind"] == "normal"


async def test_connect_carries_a_session_over_its_pipes(port):
    pipes = dict.fromkeys(("stdin", "stdout"), asyncio.subprocess.PIPE)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "spd_lsp", "connect", f"127.0.0.1:{port}", cwd=ROOT, **pipes
    )
    assert child.stdin and child.stdout
    editor = Editor(child.stdout, child.stdin)
    await editor.start()
    await editor.ready()
    editor.open(CODE, "file:///c.py")
    assert len(await labels(editor, "file:///c.py", 2, 18)) == 3
    await editor.request("shutdown")
    editor.notify("exit")
    assert await asyncio.wait_for(child.wait(), PATIENCE) == 0


def test_where_nothing_listens_connect_says_what_to_start():
    told = CliRunner().invoke(main, ["connect", f"127.0.0.1:{free_port()}"])
    assert told.exit_code == 1
    assert "start one there: spd-lsp serve --tcp" in told.output


def test_a_port_that_is_taken_is_said_in_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "spd_lsp", "serve", "--tcp", address]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "choose another port" in done.stderr
    assert "listening" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_is_opened_once_and_a_failure_is_tried_again():
    from spd_lsp.engine.reference import CausalModel

    opened: list[str] = []

    def open_model(folder, device, report):
        opened.append(device)
        if len(opened) == 1:
            raise UserError("no")
        return CausalModel(random_network(next(iter(FAST.values()))))

    shared = SharedModel(open_model)
    with pytest.raises(UserError):
        shared.seat(Path("m"), "cpu", print)
    first, second = (shared.seat(Path("m"), "cpu", print) for _ in range(2))
    assert opened == ["cpu", "cpu"]
    assert first is not second
    assert first.shared is second.shared

"""Many editors at one server: each has its own session, they share the model, and none can disturb another."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.lsp.transport.serve import SharedModel
from tests.lsp.lsp_client import PATIENCE, Editor
from tests.lsp.transport.listeners import COMPLETION, editor_at, free_port, labels, listening, surroundings
from tests.models.networks import FAST, random_network

CODE = "import argparse\n\nparser = argparse."


@pytest.fixture(scope="module", params=["socket", "port"])
def server(request, tmp_path_factory):
    """A server with the starter."""
    with listening(tmp_path_factory.mktemp("server"), "-v", tcp=request.param == "port") as server:
        yield server


@pytest.mark.slow
async def test_editors_complete_at_the_same_time_and_as_one_alone_would(server):
    async with editor_at(server) as alone:
        alone.open(CODE, "file:///a/alone.py")
        expected = await labels(alone, "file:///a/alone.py", 2, 18)
    assert len(expected) == 3

    async def one(number: int) -> list[str]:
        async with editor_at(server) as editor:
            uri = f"file:///b/{number}.py"
            editor.open(CODE, uri)
            return await labels(editor, uri, 2, 18)

    assert await asyncio.gather(*map(one, range(5))) == [expected] * 5


async def test_one_editors_documents_are_not_anothers(server):
    async with editor_at(server) as one, editor_at(server) as other:
        one.open("very_private_name = 1\n" * 50 + "very_pri", "file:///x.py")
        other.open("very_pri", "file:///x.py")
        assert any("vate_name" in label for label in await labels(one, "file:///x.py", 50, 8))
        assert not any("vate_name" in label for label in await labels(other, "file:///x.py", 0, 8))


async def test_an_editor_that_exits_or_breaks_off_ends_its_own_session_only(server):
    async with editor_at(server) as stays:
        stays.open(CODE, "file:///s.py")
        async with editor_at(server) as exits:
            await exits.request("shutdown")
            exits.notify("exit")
            await asyncio.wait_for(exits.listening, PATIENCE)
        async with editor_at(server) as vanishes:
            vanishes.open(CODE, "file:///v.py")
            vanishes.send_request(
                COMPLETION, {"textDocument": {"uri": "file:///v.py"}, "position": {"line": 2, "character": 18}}
            )
            vanishes.writer.transport.abort()
        async with editor_at(server) as babbles:
            babbles.writer.write(b"Content-Length: 9\r\n\r\nnot json!")
            await babbles.status()
        assert len(await labels(stays, "file:///s.py", 2, 18)) == 3


# A completer that never ends by itself, at a socket.
ENDLESS = """
import sys, time
from pathlib import Path
from spd_lsp.lsp.transport import access as access
from spd_lsp.lsp.transport import serve as listening
from spd_lsp.lsp import server

class Endless:
    def update_documents(self, news, asked=""):
        pass

    def run_idle_work(self, seconds):
        return False

    def complete(self, *question, name, forced, check):
        while True:
            check()
            time.sleep(0.001)

make = lambda: server.create_server(lambda settings, report: Endless())
listening.serve_many(access.SocketEndpoint(Path(sys.argv[1]), is_default=False), make)
"""


async def test_an_editor_that_vanishes_while_many_answers_are_due_leaves_no_noise(tmp_path):
    pipe = asyncio.subprocess.PIPE
    path = tmp_path / "private" / "server.sock"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENDLESS, path, stderr=pipe, env=surroundings(tmp_path)
    )

    async def editor() -> Editor:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not path.exists():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
        editor = Editor(*await asyncio.open_unix_connection(path))
        await editor.start()
        await editor.ready()
        return editor

    vanishes = await editor()
    for n in range(20):
        uri = f"file:///{n}.py"
        vanishes.open(CODE, uri)
        vanishes.send_request(COMPLETION, {"textDocument": {"uri": uri}, "position": {"line": 2, "character": 18}})
    await vanishes.status()
    vanishes.listening.cancel()
    vanishes.writer.transport.abort()
    other = await editor()
    await other.status()
    other.listening.cancel()
    other.writer.close()
    child.kill()
    _, told = await child.communicate()
    assert told.decode() == ""


async def test_an_editor_elsewhere_cannot_choose_the_model_or_a_folder(server):
    async with editor_at(server, model="/no/such/model", dataDir="/no/such/folder") as editor:
        assert (await editor.status())["kind"] == "normal"


async def test_connect_carries_a_session_over_its_pipes(server):
    pipes = dict.fromkeys(("stdin", "stdout"), asyncio.subprocess.PIPE)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "spd_lsp", "connect", server.address, env=surroundings(server.folder), **pipes
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
    assert "start one there with `spd-lsp serve --tcp" in told.output


def test_without_a_server_at_its_socket_connect_says_what_to_start(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    told = CliRunner().invoke(main, ["connect"])
    assert told.exit_code == 1
    assert "start one with `spd-lsp serve --socket`" in told.output


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "spd_lsp", "serve", "--tcp", address]
        environment = surroundings(tmp_path)
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert "choose another port" in done.stderr
    assert "listening" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_model_is_opened_once_and_a_failure_is_tried_again():
    from spd_lsp.models.transformers_engine import TransformersEngine

    opened: list[str] = []

    def open_model(folder, device, report):
        opened.append(device)
        if len(opened) == 1:
            raise UserError("no")
        return TransformersEngine(random_network(next(iter(FAST.values()))))

    shared = SharedModel(open_model)
    with pytest.raises(UserError):
        shared.seat(Path("m"), "cpu", print)
    first, second = (shared.seat(Path("m"), "cpu", print) for _ in range(2))
    assert opened == ["cpu", "cpu"]
    assert first is not second
    assert first.scheduler is second.scheduler

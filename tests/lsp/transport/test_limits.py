"""What one editor can cost: a message, a header, what it does not read, and how many of them there are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from spd_lsp.lsp.server import create_server
from spd_lsp.lsp.transport import streams as wire
from spd_lsp.lsp.transport.access import SocketEndpoint
from spd_lsp.lsp.transport.serve import Sessions
from tests.lsp.lsp_client import PATIENCE, Editor, FakeCompleter, frame, until
from tests.lsp.transport.listeners import Listener, connected, editor_at, labels, listening, surroundings

MEGABYTE = 1 << 20
CODE = "import argparse\n\nparser = argparse."

BEYOND = {
    "a message of a terabyte": b"Content-Length: 1099511627776\r\n\r\n",
    "a message of a byte too many": b"Content-Length: %d\r\n\r\n" % (wire.MAX_MESSAGE_BYTES + 1),
    "a length below zero": b"Content-Length: -5\r\n\r\n",
    "a length in words": b"Content-Length: twelve\r\n\r\n",
    "a length of 5000 digits": b"Content-Length: %s\r\n\r\n" % (b"9" * 5000),
    "a header line of a megabyte": b"X-Padding: " + b"x" * MEGABYTE,
    "a header without an end": b"X-Padding: x\r\n" * (MEGABYTE // 14),
    "nothing but line ends": b"\r\n" * MEGABYTE,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with listening(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.parametrize("said", BEYOND.values(), ids=BEYOND)
async def test_what_is_too_large_ends_its_own_session_with_a_sentence(server: Listener, said: bytes):
    server.log.clear()
    async with editor_at(server) as stays:
        stays.open(CODE, "file:///s.py")
        async with connected(server) as (reader, writer):
            writer.write(said)
            assert await asyncio.wait_for(ending(reader), PATIENCE) == b""
        line = await asyncio.to_thread(server.says, "a session ended: ")
        assert "xxxx" not in line and "9999" not in line, "nothing is quoted"
        assert len(await labels(stays, "file:///s.py", 2, 18)) == 3


async def ending(reader: asyncio.StreamReader) -> bytes:
    """What is said until the other end hangs up, politely or not."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.slow
@pytest.mark.parametrize("said", BEYOND.values(), ids=BEYOND)
def test_the_same_over_standard_input(tmp_path: Path, said: bytes):
    command = [sys.executable, "-m", "spd_lsp", "serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stderr=pipe, stdout=pipe, env=surroundings(tmp_path)) as child:
        assert child.stdin and child.stderr
        try:  # and the input stays open: the server does not wait for its end
            child.stdin.write(said)
            child.stdin.flush()
        except BrokenPipeError:
            pass
        assert child.wait(PATIENCE) == 1
        told = child.stderr.read().decode()
    assert "a session ended: " in told
    assert "Traceback" not in told


async def test_a_message_of_the_largest_size_is_taken(server: Listener):
    async with editor_at(server) as editor:
        padding = "x" * (wire.MAX_MESSAGE_BYTES - 200)
        sent = frame({"jsonrpc": "2.0", "id": 7, "method": "spd-lsp/status", "params": {"padding": padding}})
        assert wire.MAX_MESSAGE_BYTES - 200 < len(sent) < wire.MAX_MESSAGE_BYTES
        answer = editor.expect(7)
        editor.writer.write(sent)
        assert "result" in await asyncio.wait_for(answer, PATIENCE)


async def test_an_editor_that_never_reads_is_cut_off_before_it_costs_memory(tmp_path: Path, monkeypatch, caplog):
    """In this process and with a smaller bound: answers are small, and many are needed for much to be unread."""
    monkeypatch.setattr(wire, "MAX_UNSENT_BYTES", MEGABYTE // 4)
    tmp_path.chmod(0o700)
    endpoint = SocketEndpoint(tmp_path / "server.sock", is_default=False)
    sessions = Sessions(endpoint, lambda: create_server(lambda settings, report: FakeCompleter()), 9)
    async with await endpoint.open(sessions.serve):
        _, writer = await asyncio.open_unix_connection(endpoint.path, limit=1)
        writer.write(frame({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}))
        request = frame({"jsonrpc": "2.0", "id": 1, "method": "spd-lsp/status"}) * 100
        with suppress(ConnectionError):
            for _ in range(400):
                writer.write(request)
                await asyncio.wait_for(writer.drain(), PATIENCE)
        await until(lambda: not sessions.open)
        writer.transport.abort()
    assert "unread" in caplog.text


async def test_a_name_of_absurd_length_is_neither_repeated_nor_logged(server: Listener):
    server.log.clear()
    long = "y" * MEGABYTE
    async with editor_at(server) as editor:
        editor.send({"jsonrpc": "2.0", "id": 1, "method": long}, {"jsonrpc": "2.0", "id": long, "method": "no"})
        code = await editor.expect(1)
        assert len(str(code)) < 1000
        await until(lambda: editor.error_codes)
        assert (await editor.status())["kind"] == "normal"
    assert not any("yyyy" in line for line in server.log)


HELLO = {"processId": None, "rootUri": None, "capabilities": {}}


async def test_what_an_editor_left_unread_is_dropped_some_time_after_it_left(monkeypatch):
    monkeypatch.setattr(wire, "CLOSE_TIMEOUT", 1.0)
    heard = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        out = wire.SocketWriter(writer)
        out.write(b"x" * (8 * MEGABYTE))
        out.close()
        out.close()
        await asyncio.sleep(0)
        heard.set_result(writer.transport)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, limit=1) as listener:
        host, port = listener.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port, limit=1)
        transport = await heard
        assert transport.get_write_buffer_size() > 0
        await until(lambda: transport.get_write_buffer_size() == 0)
        writer.close()


@pytest.mark.slow
async def test_only_so_many_editors_are_served_and_one_more_is_told_so(tmp_path: Path):
    with listening(tmp_path, "--sessions", "2") as server:
        async with editor_at(server), editor_at(server) as second:
            async with connected(server) as ends:
                third = Editor(*ends)
                await asyncio.wait_for(third.listening, PATIENCE)
                [told] = third.received("window/showMessage")
                assert "2 editors use this server, its maximum" in told["message"]
            assert (await second.status())["kind"] == "normal"
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not await is_served(server):  # it may take a moment to notice that the two have left
            assert asyncio.get_running_loop().time() < deadline


async def is_served(server: Listener) -> bool:
    """Whether an editor that comes now is answered, rather than told that it is one too many."""
    try:
        async with connected(server) as (reader, writer):
            writer.write(frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}))
            await asyncio.wait_for(reader.readuntil(b'"capabilities"'), PATIENCE)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True

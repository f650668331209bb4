"""What a client can cost is limited: messages, headers, unread output, and the number of sessions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from spd_lsp.lsp.features import create_server
from spd_lsp.lsp.transport import streams
from spd_lsp.lsp.transport.access import listen
from spd_lsp.lsp.transport.serve import Sessions
from tests.lsp.lsp_client import Editor, FakeCompleter, frame, until
from tests.lsp.transport.listeners import (
    Listener,
    connected,
    editor_at,
    isolated_environment,
    labels,
    run_listener,
)
from tests.processes import TIMEOUT

MEGABYTE = 1 << 20
CODE = "import argparse\n\nparser = argparse."

OVERSIZED_INPUTS = {
    "a message of a terabyte": b"Content-Length: 1099511627776\r\n\r\n",
    "a message one byte too long": b"Content-Length: %d\r\n\r\n" % (streams.MAX_MESSAGE_BYTES + 1),
    "a negative length": b"Content-Length: -5\r\n\r\n",
    "a length in words": b"Content-Length: twelve\r\n\r\n",
    "a length of 5000 digits": b"Content-Length: %s\r\n\r\n" % (b"9" * 5000),
    "a header line of a megabyte": b"X-Padding: " + b"x" * MEGABYTE,
    "a header without an end": b"X-Padding: x\r\n" * (MEGABYTE // 14),
    "nothing but line breaks": b"\r\n" * MEGABYTE,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with run_listener(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.parametrize("sent", OVERSIZED_INPUTS.values(), ids=OVERSIZED_INPUTS)
async def test_oversized_input_ends_its_own_session_with_a_message(server: Listener, sent: bytes):
    server.log.clear()
    async with editor_at(server) as stays:
        stays.open(CODE, "file:///s.py")
        async with connected(server) as (reader, writer):
            writer.write(sent)
            assert await asyncio.wait_for(read_to_end(reader), TIMEOUT) == b""
        line = await asyncio.to_thread(server.wait_for_log, "a session ended: ")
        assert "xxxx" not in line and "9999" not in line, "the input is not quoted"
        assert len(await labels(stays, "file:///s.py", 2, 18)) == 3


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Return what arrives before the connection is closed or reset."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.slow
@pytest.mark.parametrize("sent", OVERSIZED_INPUTS.values(), ids=OVERSIZED_INPUTS)
def test_oversized_input_on_standard_input_ends_the_server_with_a_message(tmp_path: Path, sent: bytes):
    command = [sys.executable, "-m", "spd_lsp", "serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stderr=pipe, stdout=pipe, env=isolated_environment(tmp_path)
    ) as child:
        assert child.stdin and child.stderr
        try:  # the input stays open: the server does not wait for its end
            child.stdin.write(sent)
            child.stdin.flush()
        except BrokenPipeError:
            pass
        assert child.wait(TIMEOUT) == 1
        errors = child.stderr.read().decode()
    assert "a session ended: " in errors
    assert "Traceback" not in errors


async def test_an_editor_that_never_reads_is_disconnected_before_it_costs_memory(
    tmp_path: Path, monkeypatch, caplog
):
    """In this process and with a lower limit, because replies are small."""
    monkeypatch.setattr(streams, "MAX_UNSENT_BYTES", MEGABYTE // 4)
    tmp_path.chmod(0o700)
    path = tmp_path / "server.sock"
    sessions = Sessions(lambda: create_server(lambda settings, report: FakeCompleter()), 9)
    async with await listen(path, sessions.serve):
        _, writer = await asyncio.open_unix_connection(path, limit=1)
        writer.write(frame({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE_PARAMS}))
        request = frame({"jsonrpc": "2.0", "id": 1, "method": "spd-lsp/status"}) * 100
        with suppress(ConnectionError):
            for _ in range(400):
                writer.write(request)
                await asyncio.wait_for(writer.drain(), TIMEOUT)
        await until(lambda: not sessions.open)
        writer.transport.abort()
    assert "unread" in caplog.text


async def test_an_absurdly_long_method_name_is_neither_repeated_nor_logged(server: Listener):
    server.log.clear()
    long = "y" * MEGABYTE
    async with editor_at(server) as editor:
        editor.send({"jsonrpc": "2.0", "id": 1, "method": long}, {"jsonrpc": "2.0", "id": long, "method": "no"})
        code = await editor.expect(1)
        assert len(str(code)) < 1000
        await until(lambda: editor.error_codes)
        assert (await editor.status())["kind"] == "normal"
    assert not any("yyyy" in line for line in server.log)


INITIALIZE_PARAMS = {"processId": None, "rootUri": None, "capabilities": {}}


async def test_output_left_unread_is_dropped_some_time_after_the_editor_left(monkeypatch):
    monkeypatch.setattr(streams, "CLOSE_TIMEOUT", 1.0)
    served = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        out = streams.SocketWriter(writer)
        out.write(b"x" * (8 * MEGABYTE))
        out.close()
        out.close()
        await asyncio.sleep(0)
        served.set_result(writer.transport)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, limit=1) as listener:
        host, port = listener.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port, limit=1)
        transport = await served
        assert transport.get_write_buffer_size() > 0
        await until(lambda: transport.get_write_buffer_size() == 0)
        writer.close()


@pytest.mark.slow
async def test_an_editor_beyond_the_maximum_number_of_sessions_gets_a_message(tmp_path: Path):
    with run_listener(tmp_path, "--sessions", "2") as server:
        async with editor_at(server), editor_at(server) as second:
            async with connected(server) as streams_of_third:
                third = Editor(*streams_of_third)
                await asyncio.wait_for(third.listening, TIMEOUT)
                [shown] = third.received("window/showMessage")
                assert "2 editors use this server, its maximum" in shown["message"]
            assert (await second.status())["kind"] == "normal"
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while not await is_served(server):  # the server may take a moment to notice that the two have left
            assert asyncio.get_running_loop().time() < deadline


async def is_served(server: Listener) -> bool:
    """Return whether a new editor is served rather than refused as one too many."""
    try:
        async with connected(server) as (reader, writer):
            writer.write(frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE_PARAMS}))
            await asyncio.wait_for(reader.readuntil(b'"capabilities"'), TIMEOUT)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True

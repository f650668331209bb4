"""No client can take a shared server down."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.lsp.transport.listeners import (
    Listener,
    connected,
    editor_at,
    labels,
    run_listener,
)
from tests.processes import TIMEOUT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with run_listener(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.parametrize("sent", [b"X-Padding: " + b"x" * 1_000_000, b"Content-Length: 9\r\n\r\n["])
async def test_odd_input_ends_its_own_session_alone(server: Listener, sent: bytes):
    async with editor_at(server) as stays:
        async with connected(server) as (reader, writer):
            writer.write(sent)
            writer.write_eof()
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), TIMEOUT) == b""
        stays.open("import argparse\n\nparser = argparse.", "file:///s.py")
        assert len(await labels(stays, "file:///s.py", 2, 18)) == 3
    assert not any("xxxx" in line for line in server.log), "the input is not quoted"

"""Headers are read as the specification defines them; output for an editor that has left is dropped."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from spd_lsp.lsp.transport.streams import HeaderReader, PipeWriter, SocketWriter


@pytest.mark.parametrize(
    ("line", "normalized"),
    [
        (b"content-length: 12\r\n", b"Content-Length: 12\r\n"),
        (b"Content-Length:12\n", b"Content-Length: 12\r\n"),
        (b"Content-Length: 12\r\n", b"Content-Length: 12\r\n"),
        (b"Content-Type: application/vscode-jsonrpc\r\n", b"Content-Type: application/vscode-jsonrpc\r\n"),
        (b"\r\n", b"\r\n"),
        (b"", b""),
    ],
)
async def test_only_the_length_header_is_normalized(line: bytes, normalized: bytes):
    reader = asyncio.StreamReader()
    reader.feed_data(line)
    reader.feed_eof()
    assert await HeaderReader(reader).readline() == normalized


async def test_output_after_the_editor_has_left_is_dropped(caplog):
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    wire = SocketWriter(writer)
    theirs.close()
    assert not await reader.read()
    for _ in range(20):
        wire.write(b"x" * 1000)
        await asyncio.sleep(0)
    wire.close()
    assert not caplog.records


def test_output_to_a_broken_pipe_is_dropped():
    read, write = os.pipe()
    os.close(read)
    wire = PipeWriter(write)
    wire.write(b"x")
    wire.write(b"x")
    wire.close()

"""Headers are read as the specification defines them; output for an editor that has left is dropped."""

from __future__ import annotations

import asyncio

import pytest

from spd_lsp.lsp.transport.streams import HeaderReader


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

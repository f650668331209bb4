"""The two ends of a connection: header lines as pygls expects them, and ways out that a lost client cannot clog.

Knows nothing of the messages.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable
from typing import Protocol

__all__ = ["Headers", "SocketWire", "Wire"]

LENGTH = re.compile(rb"content-length\s*:\s*(\d+)\s*", re.IGNORECASE)


class Reader(Protocol):
    """What both standard input and sockets offer."""

    def readline(self) -> Awaitable[bytes]:
        """A line with its end."""

    def readexactly(self, n: int) -> Awaitable[bytes]:
        """So many bytes."""


class Headers:
    """A reader whose header is spelled in the one way that pygls reads: names are the same in any case."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    async def readline(self) -> bytes:
        """Example: b"content-length:7\\n" -> b"Content-Length: 7\\r\\n"."""
        line = await self.reader.readline()
        found = LENGTH.fullmatch(line)
        return b"Content-Length: %s\r\n" % found[1] if found else line

    async def readexactly(self, n: int) -> bytes:
        """The message itself, as it is."""
        return await self.reader.readexactly(n)


class Wire:
    """The protocol's own way out; what is written after the client left is dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._open = True

    def write(self, data: bytes) -> None:
        """Send all of it."""
        rest = memoryview(data)
        try:
            while self._open and rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._open = False  # the end of input follows and ends the server

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Hang up."""
        if self._open:
            self._open = False
            os.close(self._descriptor)


class SocketWire:
    """The way out over a socket, with the same promise."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Send all of it, in the background."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

"""Both ends of a connection: header lines as pygls expects them, bounded messages, and writers that never block.

Input is bounded before it is read, unsent output before it fills the memory. Knows nothing of the messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from concurrent.futures import Executor
from typing import BinaryIO, Protocol

MAX_MESSAGE_BYTES = 64 << 20
_MAX_HEADER_BYTES = 64 << 10  # of all lines; asyncio's streams have the same limit for one
MAX_UNSENT_BYTES = 16 << 20
CLOSE_TIMEOUT = 5.0  # seconds for the editor to read what was sent last

log = logging.getLogger(__name__)


class InvalidMessageSize(Exception):
    """A message is too large, or has no valid size. The error's text quotes nothing of it."""


class Reader(Protocol):
    """What standard input and sockets have in common."""

    def readline(self) -> Awaitable[bytes]:
        """Read a line with its end."""

    def readexactly(self, n: int) -> Awaitable[bytes]:
        """Read this many bytes."""


class StandardInput:
    """Standard input, read in threads."""

    def __init__(self, stream: BinaryIO, threads: Executor) -> None:
        self.stream = stream
        self.threads = threads

    def readline(self) -> Awaitable[bytes]:
        """See Reader. A line that is too long is cut."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self.threads, self.stream.readline, _MAX_HEADER_BYTES + 1)

    def readexactly(self, n: int) -> Awaitable[bytes]:
        """See Reader."""
        return asyncio.get_running_loop().run_in_executor(self.threads, self.stream.read, n)


class HeaderReader:
    """A reader that spells headers in the one way that pygls knows, and bounds messages."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.size = 0  # bytes of the header so far
        self.has_length = False

    async def readline(self) -> bytes:
        """Read a header line. Example: b"content-length:7\\n" -> b"Content-Length: 7\\r\\n"."""
        try:
            line = await self.reader.readline()
        except ValueError:  # what asyncio raises for a line without an end
            self.size += _MAX_HEADER_BYTES + 1
        else:
            self.size += len(line)
        if self.size > _MAX_HEADER_BYTES:
            raise InvalidMessageSize(f"a header is longer than {_MAX_HEADER_BYTES:,} bytes")
        if line in (b"\r\n", b"\n") and not self.has_length and self.size > len(line):
            raise InvalidMessageSize("a message has no Content-Length")  # nobody knows where the next one starts
        name, colon, value = line.partition(b":")
        if not colon or name.strip().lower() != b"content-length":
            return line
        self.has_length = True
        return b"Content-Length: %d\r\n" % _parse_length(value)

    async def readexactly(self, n: int) -> bytes:
        """Read a message."""
        self.size = 0
        self.has_length = False
        return await self.reader.readexactly(n)


def _parse_length(value: bytes) -> int:
    """A message's length, if it is acceptable. Example: b" 7\\r\\n" -> 7."""
    digits = value.strip()
    if not digits.isdigit() or len(digits) > 18:
        raise InvalidMessageSize("the length of a message is not a number of bytes")
    if (size := int(digits)) > MAX_MESSAGE_BYTES:
        raise InvalidMessageSize(f"a message has {size:,} bytes; at most {MAX_MESSAGE_BYTES:,} are accepted")
    return size


class PipeWriter:
    """Writes to a pipe; after the client has left, writes are dropped."""

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

    def close(self) -> None:
        """Close the pipe."""
        if self._open:
            self._open = False
            os.close(self._descriptor)


class SocketWriter:
    """The same over a socket; a client that does not read is disconnected before it costs memory."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Send all of it, in the background."""
        if self._writer.is_closing():
            return
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("a session ended: its editor left more than %s bytes unread", f"{MAX_UNSENT_BYTES:,}")
            self._writer.transport.abort()

    def close(self) -> None:
        """Close the connection once everything is read, or after a timeout."""
        if not self._writer.is_closing():
            self._writer.close()
            asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self._writer.transport.abort)

"""The two ends of a connection: header lines as pygls expects them, and ways out that no client can clog.

What comes in is bounded before it is read, what waits to go out before it fills the memory. Knows nothing of the
messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from concurrent.futures import Executor
from typing import BinaryIO, Protocol

LONGEST_MESSAGE = 64 << 20  # bytes
_LONGEST_HEADER = 64 << 10  # bytes of all its lines; asyncio's streams give a line up at the same length
MOST_UNREAD = 16 << 20  # bytes that wait for an editor to read them
GRACE = 5.0  # seconds to read what was said last

log = logging.getLogger(__name__)


class Oversized(Exception):
    """What a peer sends is more than is taken in, or of no size at all. Its text quotes nothing of it."""


class Reader(Protocol):
    """What both standard input and sockets offer."""

    def readline(self) -> Awaitable[bytes]:
        """A line with its end."""

    def readexactly(self, n: int) -> Awaitable[bytes]:
        """So many bytes."""


class StandardInput:
    """What an editor writes to a process, read in threads."""

    def __init__(self, stream: BinaryIO, threads: Executor) -> None:
        self.stream = stream
        self.threads = threads

    def readline(self) -> Awaitable[bytes]:
        """As in `Reader`; no more of a line than is looked at."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self.threads, self.stream.readline, _LONGEST_HEADER + 1)

    def readexactly(self, n: int) -> Awaitable[bytes]:
        """As in `Reader`."""
        return asyncio.get_running_loop().run_in_executor(self.threads, self.stream.read, n)


class Headers:
    """A reader whose header is spelled in the one way that pygls reads, and whose messages have an end."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.size = 0  # bytes of the header so far

    async def readline(self) -> bytes:
        """Example: b"content-length:7\\n" -> b"Content-Length: 7\\r\\n"."""
        try:
            line = await self.reader.readline()
        except ValueError:  # asyncio's word for a line that does not end
            self.size += _LONGEST_HEADER + 1
        else:
            self.size += len(line)
        if self.size > _LONGEST_HEADER:
            raise Oversized(f"expected a header of at most {_LONGEST_HEADER:,} bytes, found a longer one")
        name, colon, value = line.partition(b":")
        return b"Content-Length: %d\r\n" % length(value) if _is_length(name) and colon else line

    async def readexactly(self, n: int) -> bytes:
        """The message itself, as it is."""
        self.size = 0
        return await self.reader.readexactly(n)


def _is_length(name: bytes) -> bool:
    """Whether a line of a header tells the message's length; names are the same in any case."""
    return name.strip().lower() == b"content-length"


def length(value: bytes) -> int:
    """A message's length, of those that are taken. Example: b" 7\\r\\n" -> 7."""
    digits = value.strip()
    if not digits.isdigit() or len(digits) > 18:
        raise Oversized("expected the length of a message, found no number of bytes")
    if (size := int(digits)) > LONGEST_MESSAGE:
        raise Oversized(f"expected a message of at most {LONGEST_MESSAGE:,} bytes, found one of {size:,}")
    return size


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
    """The way out over a socket, with the same promise; who does not read is cut off before it costs memory."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Send all of it, in the background."""
        if self._writer.is_closing():
            return
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > MOST_UNREAD:
            log.warning("a session ends: its editor left more than %s bytes unread", f"{MOST_UNREAD:,}")
            self._writer.transport.abort()

    def close(self) -> None:
        """Hang up, once what was said last is read or its time is over."""
        if not self._writer.is_closing():
            self._writer.close()
            asyncio.get_running_loop().call_later(GRACE, self._writer.transport.abort)

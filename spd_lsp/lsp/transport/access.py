"""Where editors come in, and who may: a Unix socket for its user alone, a port for those who have its token.

In: an address. Out: connections to serve, or for an editor the connection to a server; each end has then made sure
that the other one is the user's. Knows nothing of what is said on them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ngram_builders.errors import UserError
from ngram_builders.registry.locks import hold_lock
from spd_lsp.lsp.transport.addresses import Port
from spd_lsp.lsp.transport.private_files import OTHERS_WRITE, check_own, private_folder
from spd_lsp.lsp.transport.token_proof import (
    PATIENCE,
    ask_proof,
    default_token_file,
    has_token,
    made_token,
    read_token,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Door(Protocol):
    """One place to listen at."""

    @property
    def advice(self) -> str:
        """Where it is, and what editors run."""

    async def open(self, serve: Serve) -> asyncio.AbstractServer:
        """Listen."""

    async def admits(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether who came may stay."""


class SocketDoor:
    """A Unix socket in a folder that is the user's alone."""

    def __init__(self, path: Path, *, is_default: bool) -> None:
        self.path = path
        self.is_default = is_default

    @property
    def advice(self) -> str:
        """As in `Door`."""
        run = "spd-lsp connect" if self.is_default else f"spd-lsp connect {self.path}"
        return f"listening at {self.path}; editors run: {run}"

    async def open(self, serve: Serve) -> asyncio.AbstractServer:
        """As in `Door`; the socket of a server that has ended is replaced."""
        folder = private_folder(self.path.parent)
        with hold_lock(folder / f".{self.path.name}.lock"):
            return await asyncio.start_unix_server(serve, sock=bind(folder / self.path.name))

    async def admits(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """As in `Door`: the same user."""
        return _is_own(writer.get_extra_info("socket"))


class PortDoor:
    """A TCP port and the token that its editors must have."""

    def __init__(self, port: Port, token_file: Path | None = None) -> None:
        self.port = port
        self.file = token_file or default_token_file(port)
        self.token = b""

    @property
    def advice(self) -> str:
        """As in `Door`."""
        return (
            f"listening at {self.port}, unencrypted; editors run: spd-lsp connect {self.port}; "
            f"on other machines they need a copy of its token, {self.file}"
        )

    async def open(self, serve: Serve) -> asyncio.AbstractServer:
        """As in `Door`."""
        self.token = made_token(self.file)
        try:
            return await asyncio.start_server(serve, self.port.host, self.port.number)
        except OSError as error:
            raise UserError(
                f"expected to listen at {self.port}, found: {error.strerror or error}; choose another port"
            ) from error

    async def admits(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """As in `Door`: those with the token."""
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return await has_token(reader, writer, self.token)


def bind(path: Path) -> socket.socket:
    """A socket at that path, which at no moment had wider rights than its owner's."""
    clear(path)
    wire = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        wire.bind(str(path))
        wire.listen()
    except OSError as error:
        wire.close()
        raise UserError(f"expected to listen at {path}, found: {error}; choose another path") from error
    finally:
        os.umask(before)
    return wire


def clear(path: Path) -> None:
    """Remove a socket that nobody listens at any more, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UserError(f"expected a socket or nothing at {path}, found a file; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # full, or not to be reached: someone is there
    raise UserError(f"expected nobody at {path}, found a server that listens there; end it or choose another path")


def _is_own(wire: socket.socket) -> bool:
    """Whether the other end is the same user's; where the system does not tell, the folder's rights have to do."""
    if sys.platform != "linux":
        return True
    kinds = struct.Struct("3i")  # process, user, group
    _, user, _ = kinds.unpack(wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, kinds.size))
    return bool(user == os.geteuid())


def join_socket(path: Path) -> socket.socket:
    """A connection to the user's own server, or to another machine's that the user's ssh has put there."""
    wire = socket.socket(socket.AF_UNIX)
    with _closed_on_error(wire):
        try:
            path = path.parent.resolve(strict=True) / path.name
            for one in (path.parent, path):
                check_own(one, one.lstat(), OTHERS_WRITE, f"run: chmod go-w {one}, or others could listen there")
            wire.connect(str(path))
        except OSError as error:
            raise UserError(
                f"expected a server at {path}, found none ({error.strerror or error}); "
                "start one: spd-lsp serve --socket"
            ) from error
        if not _is_own(wire):
            raise UserError(f"expected your own server at {path}, found another user's; nothing was sent to it")
    return wire


def join_port(port: Port, token_file: Path | None = None) -> socket.socket:
    """A connection to the server that has the token."""
    file = token_file or default_token_file(port)
    try:
        wire = socket.create_connection((port.host, port.number), PATIENCE)
    except OSError as error:
        raise UserError(
            f"expected a server at {port}, found none ({error.strerror or error}); "
            f"start one there: spd-lsp serve --tcp {port}"
        ) from error
    with _closed_on_error(wire):
        token = read_token(file, "copy it from the machine that serves, or name it with --token-file")
        if not ask_proof(wire, token):
            raise UserError(
                f"expected the server at {port} to prove that it has the token in {file}, found that it does not: "
                "it is another's, or its token is a new one; nothing was sent to it"
            )
    return wire


@contextmanager
def _closed_on_error(wire: socket.socket) -> Iterator[None]:
    """Hang up if it does not come about."""
    try:
        yield
    except BaseException:
        wire.close()
        raise

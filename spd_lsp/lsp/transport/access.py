"""Where servers listen and who may connect: a Unix socket for one user, a TCP port for whoever has its token.

In: an address. Out: authenticated connections. Before anything else is sent, each end has made sure that the other
one belongs to the same user. Knows nothing of LSP.
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

from ngram_builders.errors import UserError
from ngram_builders.registry.locks import hold_lock
from spd_lsp.lsp.transport.addresses import TcpAddress
from spd_lsp.lsp.transport.private_files import WRITABLE_BY_OTHERS, check_private, ensure_private_folder
from spd_lsp.lsp.transport.token_proof import (
    HANDSHAKE_TIMEOUT,
    authenticate_editor,
    authenticate_server,
    default_token_file,
    load_or_create_token,
    load_token,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class SocketEndpoint:
    """A Unix socket in a folder that only its user can enter."""

    def __init__(self, path: Path, *, is_default: bool) -> None:
        self.path = path
        self.is_default = is_default

    @property
    def description(self) -> str:
        """Where it is, and the command that editors run."""
        command = "spd-lsp connect" if self.is_default else f"spd-lsp connect {self.path}"
        return f"listening at {self.path}; editors run: {command}"

    async def open(self, serve: Serve) -> asyncio.AbstractServer:
        """Listen; the socket of a server that has ended is replaced."""
        folder = ensure_private_folder(self.path.parent)
        with hold_lock(folder / f".{self.path.name}.lock"):
            return await asyncio.start_unix_server(serve, sock=bind(folder / self.path.name))

    async def authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the other end of a new connection may use the server: it must be the same user."""
        return _is_same_user(writer.get_extra_info("socket"))


class TcpEndpoint:
    """A TCP port, and the token that its editors need."""

    def __init__(self, address: TcpAddress, token_file: Path | None = None) -> None:
        self.address = address
        self.token_file = token_file or default_token_file(address)
        self.token = b""

    @property
    def description(self) -> str:
        """Where it is, and the command that editors run."""
        return (
            f"listening at {self.address}, unencrypted; editors run: spd-lsp connect {self.address}; "
            f"on other machines they need a copy of the token in {self.token_file}"
        )

    async def open(self, serve: Serve) -> asyncio.AbstractServer:
        """Listen; the token is created if it is missing."""
        self.token = load_or_create_token(self.token_file)
        try:
            return await asyncio.start_server(serve, self.address.host, self.address.port)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"cannot listen at {self.address}: {reason}; choose another port") from error

    async def authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the other end of a new connection may use the server: it must have the token."""
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return await authenticate_editor(reader, writer, self.token)


Endpoint = SocketEndpoint | TcpEndpoint


def bind(path: Path) -> socket.socket:
    """A listening socket that was never accessible to other users, not even while it was made."""
    _remove_stale_socket(path)
    wire = socket.socket(socket.AF_UNIX)
    umask = os.umask(0o177)
    try:
        wire.bind(str(path))
        wire.listen()
    except OSError as error:
        wire.close()
        raise UserError(f"cannot listen at {path}: {error}; choose another path") from error
    finally:
        os.umask(umask)
    return wire


def _remove_stale_socket(path: Path) -> None:
    """Remove a socket that no server listens at any more, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UserError(f"cannot listen at {path}: it is a file; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # its queue is full, or it is not accessible: there is a server
    raise UserError(f"another server listens at {path}; stop it or choose another path")


def _is_same_user(wire: socket.socket) -> bool:
    """Whether the other end is the same user. Only Linux tells; elsewhere the folder's permissions must do."""
    if sys.platform != "linux":
        return True
    credentials = struct.Struct("3i")  # process, user, group
    _, user, _ = credentials.unpack(wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return bool(user == os.geteuid())


def connect_to_socket(path: Path) -> socket.socket:
    """A connection to the user's own server, or to one on another machine through a socket that ssh forwards."""
    wire = socket.socket(socket.AF_UNIX)
    with _closed_on_error(wire):
        try:
            path = path.parent.resolve(strict=True) / path.name
            for file in (path.parent, path):
                remedy = f"run `chmod go-w {file}`, or others could listen there"
                check_private(file, file.lstat(), WRITABLE_BY_OTHERS, remedy)
            wire.connect(str(path))
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"no server at {path} ({reason}); start one with `spd-lsp serve --socket`") from error
        if not _is_same_user(wire):
            raise UserError(f"the server at {path} is another user's; nothing was sent to it")
    return wire


def connect_to_port(address: TcpAddress, token_file: Path | None = None) -> socket.socket:
    """A connection to the server that has the token."""
    token_file = token_file or default_token_file(address)
    try:
        wire = socket.create_connection((address.host, address.port), HANDSHAKE_TIMEOUT)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"no server at {address} ({reason}); start one there with `spd-lsp serve --tcp {address}`"
        ) from error
    with _closed_on_error(wire):
        remedy = "copy it from the machine that runs the server, or name it with --token-file"
        token = load_token(token_file, remedy)
        try:
            has_token = authenticate_server(wire, token)
        except OSError as error:
            raise UserError(
                f"what listens at {address} closed the connection or did not answer ({error.strerror or error}): "
                "the server is busy or it is another program; nothing was sent to it; try again"
            ) from error
        if not has_token:
            raise UserError(
                f"the server at {address} does not have the token in {token_file}: it is not yours, or has a "
                "newer token; nothing was sent to it"
            )
    return wire


@contextmanager
def _closed_on_error(wire: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        wire.close()
        raise

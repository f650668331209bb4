"""Both ends of a TCP connection prove that they have the same token, without sending it.

In: a token and a new connection. Out: whether the other end has the token. Whoever eavesdrops, or listens at the
port before the server does, learns nothing that could be replayed.

    editor -> server   GREETING, nonce E
    server -> editor   nonce S, HMAC(token, "server" E S)
    editor -> server   HMAC(token, "editor" E S)

What follows is not encrypted.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import socket
import time
from pathlib import Path

import platformdirs

from ngram_builders.errors import UserError
from spd_lsp.lsp.transport.addresses import TcpAddress
from spd_lsp.lsp.transport.private_files import read_private, write_private

_GREETING = b"spd-lsp proof 1\n"
NONCE_BYTES, PROOF_BYTES = 32, 32
HANDSHAKE_TIMEOUT = 10.0  # seconds
_TOKEN = re.compile(rb"[0-9a-f]{64}\n?")


def default_token_file(address: TcpAddress) -> Path:
    """Where the token of an address is kept. Each has its own, so no server can pose as another one."""
    folder = platformdirs.user_state_path("spd-lsp", appauthor=False)
    return folder / f"{re.sub('[^0-9A-Za-z.-]', '_', str(address))}.token"


def load_or_create_token(file: Path) -> bytes:
    """The token in a file, which is created if it is missing."""
    if not file.exists():
        write_private(file, secrets.token_hex(32).encode() + b"\n")
    return load_token(file, "delete the file to get a new token")


def load_token(file: Path, remedy: str) -> bytes:
    """The token in a file."""
    try:
        content = read_private(file, 100)
    except OSError as error:
        raise UserError(f"cannot read the token in {file}: {error.strerror}; {remedy}") from error
    if not _TOKEN.fullmatch(content):
        raise UserError(f"{file} does not hold a token of 64 hexadecimal digits; {remedy}")
    return content.strip()


def _proof(token: bytes, role: bytes, nonces: bytes) -> bytes:
    """What only a holder of the token can compute, and only for this connection."""
    return hmac.digest(token, role + nonces, "sha256")


async def authenticate_editor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bool:
    """On the server: whether the other end proves in time, in a fixed number of bytes, that it has the token."""
    try:
        return await asyncio.wait_for(_exchange_proofs(reader, writer, token), HANDSHAKE_TIMEOUT)
    except (asyncio.TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return False


async def _exchange_proofs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bool:
    if await reader.readexactly(len(_GREETING)) != _GREETING:
        return False
    nonce = secrets.token_bytes(NONCE_BYTES)
    nonces = await reader.readexactly(NONCE_BYTES) + nonce
    writer.write(nonce + _proof(token, b"server", nonces))
    return hmac.compare_digest(await reader.readexactly(PROOF_BYTES), _proof(token, b"editor", nonces))


def authenticate_server(wire: socket.socket, token: bytes) -> bool:
    """In the editor: whether the other end has the token. Before that is sure, nothing sent depends on it.

    OSError if it leaves before it has answered, or takes too long.
    """
    deadline = time.monotonic() + HANDSHAKE_TIMEOUT
    nonce = secrets.token_bytes(NONCE_BYTES)
    wire.sendall(_GREETING + nonce)
    reply = _receive(wire, NONCE_BYTES + PROOF_BYTES, deadline)
    nonces = nonce + reply[:NONCE_BYTES]
    if not hmac.compare_digest(reply[NONCE_BYTES:], _proof(token, b"server", nonces)):
        return False
    wire.sendall(_proof(token, b"editor", nonces))
    wire.settimeout(None)
    return True


def _receive(wire: socket.socket, size: int, deadline: float) -> bytes:
    """Read so many bytes, or fewer if the other end sends no more."""
    data = b""
    while len(data) < size:
        wire.settimeout(max(0.001, deadline - time.monotonic()))
        if not (part := wire.recv(size - len(data))):
            break
        data += part
    return data

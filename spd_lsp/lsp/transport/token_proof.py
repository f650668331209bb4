"""Both ends of a port prove to each other that they have the same token, which itself is never sent.

In: a token, and a connection on which nothing was said. Out: whether the other end has the token. Whoever listens
in, or took the port before the server did, learns nothing that would serve another time.

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
from spd_lsp.lsp.transport.addresses import Port
from spd_lsp.lsp.transport.private_files import keep, read_private

_GREETING = b"spd-lsp proof 1\n"
NONCE, PROOF = 32, 32  # bytes
PATIENCE = 10.0  # seconds
TOKEN = re.compile(rb"[0-9a-f]{64}\n?")


def default_token_file(port: Port) -> Path:
    """Where the token of a port is kept: each has its own, so that no server can be held up for another."""
    folder = platformdirs.user_state_path("spd-lsp", appauthor=False)
    return folder / f"{re.sub('[^0-9A-Za-z.-]', '_', str(port))}.token"


def made_token(file: Path) -> bytes:
    """The token in a file, made if it is missing."""
    if not file.exists():
        keep(file, secrets.token_hex(32).encode() + b"\n")
    return read_token(file, "delete it, and a new one is made")


def read_token(file: Path, remedy: str) -> bytes:
    """The token in a file."""
    try:
        found = read_private(file, 100)
    except OSError as error:
        raise UserError(f"expected a token in {file}, found: {error.strerror}; {remedy}") from error
    if not TOKEN.fullmatch(found):
        raise UserError(f"expected a token of 64 hexadecimal digits in {file}, found something else; {remedy}")
    return found.strip()


def _prove(token: bytes, who: bytes, nonces: bytes) -> bytes:
    """What only those can say who have the token, and only in this conversation."""
    return hmac.digest(token, who + nonces, "sha256")


async def has_token(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bool:
    """The server's end: whether the other one proves itself in time. What it says is of known length."""
    try:
        return await asyncio.wait_for(_hear_proof(reader, writer, token), PATIENCE)
    except (asyncio.TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return False


async def _hear_proof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bool:
    if await reader.readexactly(len(_GREETING)) != _GREETING:
        return False
    nonce = secrets.token_bytes(NONCE)
    nonces = await reader.readexactly(NONCE) + nonce
    writer.write(nonce + _prove(token, b"server", nonces))
    return hmac.compare_digest(await reader.readexactly(PROOF), _prove(token, b"editor", nonces))


def ask_proof(wire: socket.socket, token: bytes) -> bool:
    """The editor's end: whether the other one proved itself. Before that nothing depends on the token."""
    until = time.monotonic() + PATIENCE
    nonce = secrets.token_bytes(NONCE)
    try:
        wire.sendall(_GREETING + nonce)
        answer = _receive(wire, NONCE + PROOF, until)
        nonces = nonce + answer[:NONCE]
        if not hmac.compare_digest(answer[NONCE:], _prove(token, b"server", nonces)):
            return False
        wire.sendall(_prove(token, b"editor", nonces))
    except OSError:
        return False
    wire.settimeout(None)
    return True


def _receive(wire: socket.socket, size: int, until: float) -> bytes:
    """So many bytes, or fewer if that is all."""
    found = b""
    while len(found) < size:
        wire.settimeout(max(0.001, until - time.monotonic()))
        if not (part := wire.recv(size - len(found))):
            break
        found += part
    return found

"""Addresses of servers that editors share: a Unix socket, or a TCP port.

In: what the user typed. Out: a path, or a host and a port. Knows nothing of connections.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import warnings
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ngram_builders.errors import UserError

HAS_UNIX_SOCKETS = os.name == "posix" and hasattr(socket, "AF_UNIX")  # asyncio has none on Windows
DEFAULT_TCP_ADDRESS = "127.0.0.1:2087"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP port of a host."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A host name may resolve to anything, so only numbers count."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self, unencrypted: bool) -> None:
        """Refuse to send code through a network unless the user allows it."""
        if not self.is_loopback and not unencrypted:
            raise UserError(
                f"code would cross the network unencrypted to {self}; use a loopback address such as "
                f"{DEFAULT_TCP_ADDRESS} and forward it with `ssh -L`, or allow it with --unencrypted"
            )


def parse_address(text: str) -> TcpAddress | Path:
    """Example: `127.0.0.1:2087` is a port; `/run/my.sock`, with a slash or without a colon, is a Unix socket."""
    if not text:
        return default_socket() if HAS_UNIX_SOCKETS else parse_tcp_address(DEFAULT_TCP_ADDRESS)
    if ":" not in text or "/" in text:
        return Path(text).expanduser()  # editors pass `~` on
    return parse_tcp_address(text)


def parse_tcp_address(text: str) -> TcpAddress:
    """Example: `:2087` and `localhost:2087` are port 2087 of 127.0.0.1; `[::1]:2087` of that address."""
    host, colon, port = text.rpartition(":")
    if not colon or not is_integer(port) or not 0 < int(port) < 65536:
        raise UserError(f"{text!r} is not HOST:PORT, such as {DEFAULT_TCP_ADDRESS}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    # Never ::1 for localhost, where somebody else could listen.
    return TcpAddress("127.0.0.1" if host in ("", "localhost") else host, int(port))


def is_integer(text: str) -> bool:
    """Whether `int` accepts a text, and it is not absurdly long. Example: `²` is a digit but no integer."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def default_socket() -> Path:
    """Where a user's server listens by default."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a login session: the fallback folder is checked as well
            folder = platformdirs.user_runtime_path("spd-lsp", appauthor=False)
    except OSError as error:
        raise UserError(f"no runtime folder for a socket ({error}); name a socket yourself") from error
    return folder / "server.sock"

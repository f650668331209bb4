"""Where servers listen that many editors share: a Unix socket, or a port of a machine.

In: what a person typed. Out: a path, or a host and a port. Knows nothing of connections.
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

UNIX_SOCKETS = os.name == "posix" and hasattr(socket, "AF_UNIX")  # asyncio has none on Windows
DEFAULT_PORT = "127.0.0.1:2087"


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port of a machine."""

    host: str
    number: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.number}" if ":" in self.host else f"{self.host}:{self.number}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it; a name may be anything's, so only a number counts."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self, unencrypted: bool) -> None:
        """Refuse a way through the network, unless the person knows that it can be read there."""
        if not self.is_loopback and not unencrypted:
            raise UserError(
                f"expected an address of this machine alone, such as {DEFAULT_PORT}, found {self}: code would "
                "cross the network unencrypted; forward the port with `ssh -L`, or accept that with --unencrypted"
            )


def read_address(address: str) -> Port | Path:
    """Example: `127.0.0.1:2087` is a port; `/run/my.sock`, with a slash or without a colon, is a Unix socket."""
    if not address:
        return default_socket() if UNIX_SOCKETS else parse_port(DEFAULT_PORT)
    if ":" not in address or "/" in address:
        return Path(address).expanduser()  # editors' settings do not do it
    return parse_port(address)


def parse_port(address: str) -> Port:
    """Example: `:2087` and `localhost:2087` are port 2087 of 127.0.0.1; `[::1]:2087` of that address."""
    host, colon, port = address.rpartition(":")
    if not colon or not is_number(port) or not 0 < int(port) < 65536:
        raise UserError(f"expected HOST:PORT such as {DEFAULT_PORT}, found {address!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    # One meaning for the usual name: at the other loopback address someone else may listen.
    return Port("127.0.0.1" if host in ("", "localhost") else host, int(port))


def is_number(text: str) -> bool:
    """Whether `int` reads a text, which is not of absurd length either. Example: `²` is a digit and no number."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def default_socket() -> Path:
    """Where the user's own server listens if nothing else is said."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # that there is no session of a desktop: the fallback is checked as well
            folder = platformdirs.user_runtime_path("spd-lsp", appauthor=False)
    except OSError as error:
        raise UserError(f"expected a runtime folder of yours, found: {error}; name a socket yourself") from error
    return folder / "server.sock"

"""Who may connect: programs of this user, at a Unix socket in a private folder or at a loopback address.

In: paths and addresses. Out: sockets, and the bytes that an editor and a shared server exchange.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

import platformdirs

from ngram_builders.errors import UserError

_ACCESSIBLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]*|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")
_CHUNK_BYTES = 65536


def parse_address(text: str) -> tuple[str, int]:
    """A loopback address and port. Example: `localhost:8012` -> ("127.0.0.1", 8012)."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise UserError(f"expected an address such as 127.0.0.1:8012, found {text!r}")
    host = (found["host"] or "127.0.0.1").strip("[]")
    if not is_loopback(host):
        raise UserError(
            f"other machines can reach {host}, and could ask for your code; listen at 127.0.0.1, and forward the "
            "port with ssh -L 8012:127.0.0.1:8012 HOST"
        )
    return "127.0.0.1" if host == "localhost" else host, int(found["port"])


def is_loopback(host: str) -> bool:
    """Whether a host name or address always means this machine, without a look-up."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def loopback_socket(host: str, port: int) -> socket.socket:
    """A listening socket at a loopback address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        remedy = "choose another port, or stop the program that has it"
        raise UserError(f"cannot listen at {host} port {port} ({error.strerror}); {remedy}") from error


def socket_path(path: str | None) -> Path:
    """The socket that a user names, or without a name the default one, in an absolute path."""
    if os.name != "posix":
        raise UserError(
            "Python has no Unix sockets on this system; run the server on Linux or macOS, and let the editor "
            "start `ssh HOST spd-lsp connect`"
        )
    if path:
        return Path(path).expanduser().absolute()  # editors pass `~` on
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a login session: the fallback folder is checked as well
        return platformdirs.user_runtime_path("spd-lsp", appauthor=False) / "server.sock"


def private_socket(path: Path) -> socket.socket:
    """A listening socket in a folder that only its user can enter; that of a server that has ended is replaced."""
    wire = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = path.parent.resolve() / path.name
        remedy = "choose a folder of your own, and run `chmod 700` on it"
        _check_private(path.parent, _ACCESSIBLE_BY_OTHERS, remedy)
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
                    raise UserError(f"another server listens at {path}; stop it or choose another path")
            path.unlink()
        wire.bind(str(path))
        path.chmod(0o600)
        wire.listen()
    except OSError as error:
        wire.close()
        raise UserError(f"cannot listen at {path}: {error.strerror}; choose another path") from error
    except UserError:
        wire.close()
        raise
    return wire


def _check_private(path: Path, forbidden: int, remedy: str) -> None:
    """Refuse what belongs to another user, or has one of the forbidden permission bits."""
    status = path.lstat()
    if status.st_uid != os.geteuid():
        raise UserError(f"{path} is owned by user {status.st_uid}, not by you; choose another one")
    if status.st_mode & forbidden:
        mode = stat.S_IMODE(status.st_mode)
        raise UserError(f"{path} is accessible to other users (mode {mode:o}); {remedy}")


def connect_to_socket(path: Path) -> socket.socket:
    """A connection to the user's own server, or to one on another machine through a socket that ssh forwards."""
    wire = socket.socket(socket.AF_UNIX)
    try:
        path = path.parent.resolve(strict=True) / path.name
        for file in (path.parent, path):
            remedy = "others could listen there; have the socket in a folder that only you can write to"
            _check_private(file, _WRITABLE_BY_OTHERS, remedy)
        wire.connect(str(path))
    except OSError as error:
        wire.close()
        reason = error.strerror or error
        raise UserError(f"no server at {path} ({reason}); start one with `spd-lsp serve --socket`") from error
    except UserError:
        wire.close()
        raise
    return wire


def relay(wire: socket.socket) -> bool:
    """Copy standard input to a server and its answers to standard output, until one end closes.

    Returns whether the editor left, by the message `exit` or by closing its end, and not the server.
    """
    editor_leaves = threading.Event()

    def upload() -> None:
        with suppress(OSError):  # the server has left, which ends the other direction, too
            while data := os.read(0, _CHUNK_BYTES):
                if b'"exit"' in data:
                    editor_leaves.set()
                wire.sendall(data)
            editor_leaves.set()
            wire.shutdown(socket.SHUT_WR)

    threading.Thread(target=upload, daemon=True).start()
    with wire, suppress(ConnectionError):
        while data := wire.recv(_CHUNK_BYTES):
            try:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            except OSError:
                return True
    return editor_leaves.is_set()

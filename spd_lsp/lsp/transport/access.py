"""The Unix socket of a server that editors share, in a folder that only its user can enter.

In: a path. Out: connections whose other end belongs to the same user. Knows nothing of LSP.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import platformdirs

from ngram_builders.errors import UserError
from ngram_builders.scratch import hold_lock

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_HAS_UNIX_SOCKETS = os.name == "posix"  # asyncio has none on Windows
_ACCESSIBLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def socket_path(path: str | None) -> Path:
    """The socket that a user names, or without a name the default one, in an absolute path."""
    if not _HAS_UNIX_SOCKETS:
        raise UserError(
            "Python has no Unix sockets on this system; run the server on Linux or macOS, and let the editor "
            "start `ssh HOST spd-lsp connect`"
        )
    if path:
        return Path(path).expanduser().absolute()  # editors pass `~` on
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a login session: the fallback folder is checked as well
            return platformdirs.user_runtime_path("spd-lsp", appauthor=False) / "server.sock"
    except OSError as error:
        raise UserError(f"no runtime folder for a socket ({error}); name a socket yourself") from error


async def listen(path: Path, serve: Serve) -> asyncio.AbstractServer:
    """Listen at a socket; that of a server that has ended is replaced."""
    return await asyncio.start_unix_server(serve, sock=private_socket(path))


def private_socket(path: Path) -> socket.socket:
    """A listening socket in a folder that only its user can enter; that of a server that has ended is replaced."""
    folder = _ensure_private_folder(path.parent)
    with hold_lock(folder / f".{path.name}.lock"):
        return bind(folder / path.name)


def _ensure_private_folder(folder: Path) -> Path:
    """The folder with its links resolved, created if it is missing; refused if others may enter it."""
    try:
        for path in [*reversed(folder.parents), folder]:
            if not path.is_dir():
                path.mkdir(mode=0o700, exist_ok=True)
        folder = folder.resolve(strict=True)
        status = folder.stat()
    except OSError as error:
        raise UserError(f"cannot use the folder {folder}: {error.strerror}; choose another one") from error
    _check_private(folder, status, _ACCESSIBLE_BY_OTHERS, "choose a folder of your own, and run `chmod 700` on it")
    return folder


def _check_private(path: Path, status: os.stat_result, forbidden: int, remedy: str) -> None:
    """Refuse what belongs to another user, or has one of the forbidden permission bits."""
    if status.st_uid != os.geteuid():
        raise UserError(f"{path} is owned by user {status.st_uid}, not by you; choose another one")
    if status.st_mode & forbidden:
        mode = stat.S_IMODE(status.st_mode)
        raise UserError(f"{path} is accessible to other users (mode {mode:o}); {remedy}")


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


def is_same_user(wire: socket.socket) -> bool:
    """Whether the other end is the same user. Only Linux tells; elsewhere the folder's permissions must do."""
    if sys.platform != "linux":
        return True
    credentials = struct.Struct("3i")  # process, user, group
    _, user, _ = credentials.unpack(wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return bool(user == os.geteuid())


def connect_to_socket(path: Path) -> socket.socket:
    """A connection to the user's own server, or to one on another machine through a socket that ssh forwards."""
    wire = socket.socket(socket.AF_UNIX)
    try:
        path = path.parent.resolve(strict=True) / path.name
        for file in (path.parent, path):
            remedy = "others could listen there; have the socket in a folder that only you can write to"
            _check_private(file, file.lstat(), _WRITABLE_BY_OTHERS, remedy)
        wire.connect(str(path))
        if not is_same_user(wire):
            raise UserError(f"the server at {path} is another user's; nothing was sent to it")
    except OSError as error:
        wire.close()
        reason = error.strerror or error
        raise UserError(f"no server at {path} ({reason}); start one with `spd-lsp serve --socket`") from error
    except UserError:
        wire.close()
        raise
    return wire

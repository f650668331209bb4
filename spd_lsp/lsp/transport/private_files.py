"""Files and folders that only their user can access. Windows restricts a user's folders by itself.

In: paths. Out: their content or resolved path, or a UserError about who else could have accessed them.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from ngram_builders.errors import UserError

_POSIX = os.name == "posix"
_ACCESSIBLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def ensure_private_folder(folder: Path) -> Path:
    """The folder with its links resolved, created if it is missing; refused if others may enter it."""
    try:
        _create_folders(folder)
        folder = folder.resolve(strict=True)
        status = folder.stat()
    except OSError as error:
        raise UserError(f"cannot use the folder {folder}: {error.strerror}; choose another one") from error
    check_private(folder, status, _ACCESSIBLE_BY_OTHERS, "choose a folder of your own, and run `chmod 700` on it")
    return folder


def _create_folders(folder: Path) -> None:
    """Create a folder and its parents, for the user alone."""
    for path in [*reversed(folder.parents), folder]:
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def check_private(path: Path, status: os.stat_result, forbidden: int, remedy: str) -> None:
    """Refuse what belongs to another user, or has one of the forbidden permission bits."""
    if not _POSIX:
        return
    if status.st_uid != os.geteuid():
        raise UserError(f"{path} is owned by user {status.st_uid}, not by you; choose another one")
    if status.st_mode & forbidden:
        mode = stat.S_IMODE(status.st_mode)
        raise UserError(f"{path} is accessible to other users (mode {mode:o}); {remedy}")


def read_private(file: Path, max_bytes: int) -> bytes:
    """The content of a file that nobody else could read or write, at most so many bytes."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{file} is not a regular file; choose another one")
        remedy = f"run `chmod 600 {file}`, or create a new one if others may have read it"
        check_private(file, status, _ACCESSIBLE_BY_OTHERS, remedy)
        return stream.read(max_bytes)


def write_private(file: Path, data: bytes) -> None:
    """Write a file atomically, never accessible to others; its folder is created if it is missing."""
    scratch = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        _create_folders(file.parent)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        scratch.replace(file)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; make room or choose another place") from error
    finally:
        with suppress(OSError):
            scratch.unlink()

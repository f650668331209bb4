"""Files and folders that are one user's alone, and stay so. Windows keeps a user's folders to the user by itself.

In: paths. Out: what they hold or where they are, or a UserError that says who else could have had a hand in it.
Knows nothing of what is kept there.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from ngram_builders.errors import UserError

_POSIX = os.name == "posix"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_folder(folder: Path) -> Path:
    """The folder without links, made if it is missing; refused if anyone else may enter it."""
    try:
        make(folder)
        folder = folder.resolve(strict=True)
        found = folder.stat()
    except OSError as error:
        raise UserError(f"expected a folder at {folder}, found: {error.strerror}; name another place") from error
    check_own(folder, found, _OTHERS, "name a folder that is to hold nothing for others, and run: chmod 700 on it")
    return folder


def make(folder: Path) -> None:
    """Make what is missing of a folder and of those it lies in, for the user alone."""
    for one in [*reversed(folder.parents), folder]:
        if not one.is_dir():
            one.mkdir(mode=0o700, exist_ok=True)


def check_own(path: Path, found: os.stat_result, refused: int, remedy: str) -> None:
    """Refuse what belongs to another user, or gives others rights that it should not."""
    if not _POSIX:
        return
    if found.st_uid != os.geteuid():
        raise UserError(f"expected {path} to be yours, found it owned by user {found.st_uid}; name another place")
    if found.st_mode & refused:
        mode = stat.S_IMODE(found.st_mode)
        raise UserError(f"expected {path} to be yours alone, found it open to others (mode {mode:o}); {remedy}")


def read_private(file: Path, most: int) -> bytes:
    """What a file of the user's own holds, up to so many bytes; nobody else could read or write it."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"expected a plain file at {file}, found something else; name another place")
        check_own(file, found, _OTHERS, f"run: chmod 600 {file}, or make a new one if others may have read it")
        return opened.read(most)


def keep(file: Path, data: bytes) -> None:
    """Write a file that was never open to others, whole or not at all; its folder is made if it is missing."""
    scratch = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        make(file.parent)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
        scratch.replace(file)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; make room there or name another place") from error
    finally:
        with suppress(OSError):
            scratch.unlink()

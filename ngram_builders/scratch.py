"""Files that are written completely or not at all, those that were not finished end in `.tmp`; and files read."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ngram_builders.errors import UserError

_CHUNK_BYTES = 1 << 20
SCRATCH_PATTERN = ".*.tmp"
_REMEDIES = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there",
    errno.EFBIG: "raise the limit for one file (`ulimit -f`, or the file system's own)",
}


def scratch_path(file: Path) -> Path:
    """A new name beside a file that this process will write and then rename."""
    return file.with_name(f".{file.name}.{secrets.token_hex(8)}.tmp")


def replace_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file completely or not at all. Whoever has the old one mapped keeps it."""
    scratch = scratch_path(path)
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):
            scratch.unlink()
    _sync_folder(path.parent)


def read_chunks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, a piece at a time."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def write_error(
    place: object, error: OSError, remedy: str = "make it writable or choose another folder"
) -> UserError:
    """The error for what the system does not let us write."""
    remedy = _REMEDIES.get(error.errno or 0, remedy)
    return UserError(f"cannot write {place}: {error.strerror or error}; {remedy}, and run the same command again")


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system can."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

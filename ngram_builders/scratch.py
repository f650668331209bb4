"""Files that several processes use: written completely or not at all, by one at a time; and records read.

What was not finished ends in `.tmp`.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]

from ngram_builders.errors import UserError

_CHUNK_BYTES = 1 << 20
_LOCK_TIMEOUT = 10.0  # seconds; most locks guard sections of milliseconds
SCRATCH_PATTERN = ".*.tmp"
RECORD_ERRORS = (OSError, LookupError, TypeError, ValueError, AttributeError)  # of what reads a damaged one
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


def read_chunks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, a piece at a time."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def write_error(
    place: object, error: OSError, remedy: str = "make it writable or choose another folder"
) -> UserError:
    """The error for a place that cannot be written, with its cause and remedy."""
    remedy = _REMEDIES.get(error.errno or 0, remedy)
    return UserError(f"cannot write {place}: {error.strerror or error}; {remedy}, and run the same command again")


def read_record(file: Path) -> Any:
    """Read a small msgpack file; one of RECORD_ERRORS if it is none."""
    return msgpack.unpackb(file.read_bytes(), unicode_errors="surrogateescape")


def write_record(file: Path, record: object) -> None:
    """Replace a small msgpack file."""
    replace_file(file, [msgpack.packb(record, unicode_errors="surrogateescape")])  # paths may be of any bytes


def file_stamp(file: Path) -> tuple[str, int, int, int]:
    """A value that changes with a file: its path, inode, time and size; a replaced file has another inode."""
    try:
        status = file.stat()
        return (str(file), status.st_ino, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError):  # ValueError: no file has such a name
        return (str(file), 0, 0, 0)


@contextmanager
def hold_lock(file: Path, timeout: float = _LOCK_TIMEOUT, busy: str = "") -> Iterator[None]:
    """Keep other processes and threads out; UserError if the lock is not free within `timeout` seconds.

    busy: what this then means to a person. The system ends a lock with its process. The file stays: deleting it
    could leave two processes with a lock each, on two files of one name.
    """
    from filelock import FileLock, Timeout  # here, because a server that only reads needs none

    lock = FileLock(file, mode=0o600)
    try:
        lock.acquire(timeout=timeout, poll_interval=0.02)
    except Timeout as error:
        busy = busy or f"another process holds the lock {file}"
        raise UserError(f"{busy}; try again when that is done") from error
    except OSError as error:
        raise write_error(file, error) from error
    try:
        yield
    finally:
        lock.release()

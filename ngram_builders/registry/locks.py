"""A lock file -> a section that one process at a time is in. Does not know what is guarded.

The system holds the lock for the open file, so it ends with its process, however that ends: nothing has to be
cleaned up, and a lock may be held for as long as a build takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ngram_builders.errors import UserError

_LOCK_TIMEOUT = 10.0  # seconds; most locks guard sections of milliseconds


@contextmanager
def hold_lock(file: Path, timeout: float = _LOCK_TIMEOUT) -> Iterator[None]:
    """Keep other processes and threads out; UserError if the lock is not free within `timeout` seconds.

    The file stays: deleting it could leave two processes with a lock each, on two files of one name.
    """
    from filelock import FileLock, Timeout  # here, because a server that only reads needs none

    lock = FileLock(file, mode=0o600)
    try:
        lock.acquire(timeout=timeout, poll_interval=0.02)
    except Timeout as error:
        raise UserError(f"another process holds the lock {file}; try again when it is done") from error
    try:
        yield
    finally:
        lock.release()


def is_running(process: int) -> bool:
    """Whether a process runs here; True where nobody can say: outside POSIX asking may harm it."""
    if os.name != "posix" or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's, or not a process id
    return True

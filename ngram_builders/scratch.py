"""Files that are written completely or not at all; the names of unfinished ones say who writes them, and where.

Process ids mean something only where they were given: other machines and containers that share a folder have
their own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from ngram_builders.errors import UserError

_PATTERN = re.compile(r"\..*\.(?:([0-9a-f]{8})-)?(\d+)-[0-9a-f]+\.tmp")


def scratch_path(file: Path) -> Path:
    """A new name beside a file that this process will write and then rename."""
    return file.with_name(f".{file.name}.{_place()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def read_writer(name: str) -> int | None:
    """The process that writes an unfinished file, 0 if it may run elsewhere; None if the name is none of these."""
    match = _PATTERN.fullmatch(name)
    if match is None:
        return None
    return int(match[2]) if match[1] == _place() else 0


@cache
def _place() -> str:
    """A digest of the running system and of the container, within which process ids are unique."""
    facts = [platform.node()]
    try:
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    except OSError:
        pass  # not Linux: there the name has to do
    return hashlib.blake2b("\0".join(facts).encode(), digest_size=4).hexdigest()


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


def write_error(path: Path, error: OSError) -> UserError:
    """The error for a file that the system does not let us write."""
    return UserError(f"cannot write {path}: {error.strerror or error}; free space there or choose another folder")


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system can."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

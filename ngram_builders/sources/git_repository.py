"""A git work tree -> where git keeps its data. Knows no rules and no source code.

Runs no program: git would run what a stranger's repository names in its configuration (`core.fsmonitor`, filters).
"""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

from ngram_builders.scratch import file_stamp

GIT = ".git"
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # not every system has each
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_MAX_PATH_CHARACTERS = 4_096
_MAX_LOCK_SECONDS = 60  # git writes a lock when it begins, and renames it when it is done

# Shares, and what automounters mount by name.
_ANOTHER_MACHINE = re.compile(r"(?://|/net/|/Network/Servers/)[^/]+")


def checkout_state(folder: Path) -> tuple[object, ...]:
    """A value that changes with each checkout and commit in the repository around a folder; () outside of one."""
    private = _private_folder_around(folder)
    return tuple(file_stamp(private / name) for name in ("HEAD", "index")) if private else ()


def is_git_at_work(folder: Path) -> bool:
    """Whether git is changing the work tree around a folder: it holds a lock that is not old."""
    private = _private_folder_around(folder)
    locked = file_stamp(private / "index.lock")[2] if private else 0
    return abs(time.time_ns() - locked) < _MAX_LOCK_SECONDS * 10**9  # nor is one of the far future believed


def git_folder(repository: str) -> Path:
    """Return where git keeps a repository's data: `.git`, or the folder that a file of this name points to."""
    private = _private_folder(Path(repository))
    return follow(private, _read_path(private / "commondir")) or private  # of a worktree: what it belongs to


def _private_folder_around(folder: Path) -> Path | None:
    """Where the data of the work tree around a folder are; None outside of one."""
    return next((_private_folder(one) for one in (folder, *folder.parents) if os.path.lexists(one / GIT)), None)


def _private_folder(repository: Path) -> Path:
    """Return where the data of one work tree are, such as its index."""
    path = repository / GIT
    if not os.path.isfile(path):  # noqa: PTH113, which raises for some
        return path
    return follow(repository, _read_path(path).partition("gitdir:")[2].strip()) or repository  # where nothing is


def follow(folder: Path, name: str) -> Path | None:
    """The folder that a file in another folder names; None on another machine, which would see the request."""
    host = _machine(name) or _machine(os.path.normpath(folder / name))
    return folder / name if name and (not host or host == _machine(os.path.realpath(folder))) else None


def _machine(path: str) -> str:
    """The part of a path that names another machine, or "". Example: `/net/box/src` -> `/net/box`."""
    found = _ANOTHER_MACHINE.match(path.replace("\\", "/"))
    return found[0] if found else ""


def _read_path(file: Path) -> str:
    """Read a path from a small file; empty if there is none."""
    text = read_regular_file(str(file), _MAX_PATH_CHARACTERS).decode("utf-8", errors="surrogateescape")
    return "" if "\0" in text else text.strip()


def read_regular_file(path: str, limit: int, flags: int = 0) -> bytes:
    """Read the start of a regular file; nothing of a pipe or device, and nothing if there is none."""
    try:
        descriptor = os.open(path, OPEN_FLAGS | flags)
        with os.fdopen(descriptor, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return file.read(limit) if is_regular else b""
    except (OSError, ValueError):
        return b""

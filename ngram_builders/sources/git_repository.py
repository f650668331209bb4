"""A git work tree -> which files git tracks, and where git keeps its data. Knows no rules and no source code.

Reads the index itself and runs no program: git would run what a stranger's repository names in its configuration
(`core.fsmonitor`, filters, hooks). Reads versions 2 to 4, SHA-1 and SHA-256, split and sparse; anything else is as
if there were no index.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

GIT = ".git"
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_MAX_PATH_CHARACTERS = 4_096
_MAX_INDEX_BYTES = 128 << 20  # Chromium's 480,000 files take 60 MB
_MAX_NAME_BYTES = 64 << 20  # of all paths; a crafted index can repeat a long one at little cost
_MAX_EXTENSIONS = 64
_MAX_LOCK_SECONDS = 60  # git writes a lock when it begins, and renames it when it is done

# Shares, and what automounters mount by name.
_ANOTHER_MACHINE = re.compile(r"(?://|/net/|/Network/Servers/)[^/]+")

_HEADER_BYTES = 12
_HASH_BYTES = (20, 32)
_MODE_AT, _HASH_AT = 24, 40  # in an entry
_EXTENDED, _NAME_LENGTH = 0x4000, 0x0FFF  # of its flags
_SUBMODULE = 0o160000
_SPARSE_FOLDER = 0o040000
_MODES = frozenset({0o100644, 0o100755, 0o100664, 0o120000, _SUBMODULE, _SPARSE_FOLDER})


@dataclass(frozen=True, slots=True)
class TrackedFiles:
    """Paths that an index names, relative to its work tree, with slashes."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()  # that hold one of the files or are a submodule


class WorkTree:
    """A folder with a `.git`; its index is read when it is first asked for."""

    def __init__(self, folder: str) -> None:
        self._base = folder if folder.endswith(os.sep) else folder + os.sep
        self._folder = folder

    def tracks(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether git tracks a file, or anything in a folder."""
        name = path[len(self._base) :].replace(os.sep, "/")
        return name in (self._tracked.folders if is_folder else self._tracked.files)

    @cached_property
    def _tracked(self) -> TrackedFiles:
        index = _private_folder(self._folder) / "index"
        return _read_index(index, _file_state(index))


def checkout_state(folder: Path) -> tuple[tuple[int, int, int], ...]:
    """What changes when git checks out or commits in the repository around a folder; empty outside of one."""
    private = _private_folder_around(folder)
    return tuple(_file_state(private / name) for name in ("HEAD", "index")) if private else ()


def is_git_at_work(folder: Path) -> bool:
    """Whether git is changing the work tree around a folder; an old lock was left behind."""
    private = _private_folder_around(folder)
    locked = _file_state(private / "index.lock")[0] if private else 0
    return time.time_ns() - locked < _MAX_LOCK_SECONDS * 10**9


def _private_folder_around(folder: Path) -> Path | None:
    """Where the data of the work tree around a folder are; None outside of one."""
    repository = next((one for one in (folder, *folder.parents) if os.path.lexists(one / GIT)), None)
    return _private_folder(str(repository)) if repository else None


def _file_state(file: Path) -> tuple[int, int, int]:
    """What distinguishes one state of a file from the next; zeros without the file."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


def git_folder(repository: str) -> Path:
    """Return where git keeps a repository's data: `.git`, or the folder that a file of this name points to."""
    private = _private_folder(repository)
    try:
        common = _read_path(private / "commondir").strip()  # of a worktree: the repository that it belongs to
    except OSError:
        return private
    return follow(private, common) or private


def _private_folder(repository: str) -> Path:
    """Return where the data of one work tree are, such as its index."""
    path = Path(repository, GIT)
    try:
        if not path.is_file():
            return path
        named = _read_path(path).partition("gitdir:")[2].strip()
    except OSError:
        return path
    return follow(Path(repository), named) or Path(repository)  # where nothing is


def follow(folder: Path, name: str) -> Path | None:
    """The folder that a file in another one names; none on another machine, which asking would tell who asks."""
    host = _machine(name) or _machine(os.path.normpath(folder / name))
    return folder / name if name and (not host or host == _machine(os.path.realpath(folder))) else None


def _machine(path: str) -> str:
    """What names another machine at a path's beginning. Example: `/net/box/src` -> `/net/box`."""
    found = _ANOTHER_MACHINE.match(path.replace("\\", "/"))
    return found[0] if found else ""


def _read_path(file: Path) -> str:
    """Read a path from a small file; empty if there is none."""
    text = read_regular_file(str(file), _MAX_PATH_CHARACTERS).decode("utf-8", errors="surrogateescape")
    return "" if "\0" in text else text


def read_regular_file(path: str, limit: int, flags: int = 0) -> bytes:
    """Read the start of a regular file; nothing of a pipe or device, and nothing if there is none."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS | flags)
        with os.fdopen(descriptor, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return file.read(limit) if is_regular else b""
    except (OSError, ValueError):
        return b""


@lru_cache(4)
def _read_index(path: Path, state: tuple[int, int, int]) -> TrackedFiles:
    """Read which files an index in this state names; none if it is damaged or of another format."""
    data = read_regular_file(str(path), _MAX_INDEX_BYTES)
    for hash_bytes in _HASH_BYTES:  # the index does not say which; with the other, modes make no sense
        try:
            names, link = _parse_index(data, hash_bytes)
            if link:  # a split index: the rest of the entries. What it deletes from them counts as tracked
                shared = read_regular_file(str(path.with_name(f"sharedindex.{link}")), _MAX_INDEX_BYTES)
                names |= _parse_index(shared, hash_bytes)[0]
        except (ValueError, IndexError):
            continue
        return _group_names(names)
    return TrackedFiles()


def _parse_index(data: bytes, hash_bytes: int) -> tuple[dict[bytes, int], str]:
    """Return the modes of an index's entries by path, and the hash of the one that it adds to, or ""."""
    version = int.from_bytes(data[4:8], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index, or one of another version")
    names: dict[bytes, int] = {}
    name, at, size = b"", _HEADER_BYTES, 0
    for _ in range(int.from_bytes(data[8:12], "big")):
        flags_at = at + _HASH_AT + hash_bytes
        mode = int.from_bytes(data[at + _MODE_AT : at + _MODE_AT + 4], "big")
        flags = data[flags_at] << 8 | data[flags_at + 1]
        start = flags_at + (4 if flags & _EXTENDED else 2)
        kept = b""
        if version == 4:  # the name begins as the one before, less some letters
            dropped, start = _read_varint(data, start)
            kept = name[: len(name) - dropped]
        end = data.index(0, start)
        name = kept + data[start:end]
        size += len(name)
        if mode not in _MODES or flags & _NAME_LENGTH != min(len(name), _NAME_LENGTH) or size > _MAX_NAME_BYTES:
            raise ValueError("damaged, crafted, or with hashes of another length")
        names[name] = mode
        at = end + 1 if version == 4 else at + (end - at + 8 & ~7)
    return names, _find_link(data[at : len(data) - hash_bytes], hash_bytes)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of any length, and where it ends."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = (value + 1 << 7) + (data[at] & 127)
    return value, at + 1


def _find_link(extensions: bytes, hash_bytes: int) -> str:
    """Return the hash of the index that a split one adds to, or "" if there is none."""
    for name, content in _split_extensions(extensions):
        if name == b"link":
            return content[:hash_bytes].hex()
        if name[:1].islower() and name != b"sdir":
            raise ValueError("needs an extension that is not known here")
    return ""


def _split_extensions(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and contents of what follows the entries."""
    at = 0
    for _ in range(_MAX_EXTENSIONS):
        if at >= len(data):
            return
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        yield data[at : at + 4], data[at + 8 : at + 8 + size]
        at += 8 + size


def _group_names(modes: dict[bytes, int]) -> TrackedFiles:
    """Group the paths of entries into files, and the folders that hold them."""
    files, folders, size = set(), set(), 0
    for encoded, mode in modes.items():
        name = os.fsdecode(encoded)
        if mode == _SUBMODULE:
            folders.add(name)
        elif mode != _SPARSE_FOLDER and name:  # nothing of such a folder is on the disk
            files.add(name)
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            size += len(folder)
            if size > _MAX_NAME_BYTES:
                return TrackedFiles()
            folder = folder.rpartition("/")[0]
    return TrackedFiles(frozenset(files), frozenset(folders))

"""What builds, crashes and removed domains left in a registry's folder, and what can be done about it.

Comes in: the registry's folder. Goes out: findings, each with its size; `clear` acts on one. Knows no tables.
Whoever calls holds the registry's lock, so that what is just being put in its place is not taken for a leftover.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.errors import UserError
from ngram_builders.registry.domains import (
    INDEX_FILE,
    PARSE_ERRORS,
    TABLE_PATTERN,
    has_index,
    is_name,
    parse_index,
    read_record,
)
from ngram_builders.registry.locks import hold_lock, is_running

_ASIDE = ".aside"  # what cannot be read is kept here
BUILD_LOCK = ".building"  # the lock that a build holds in its domain's folder
_COUNTING = "*.counting"  # what a count in tasks has done so far
_SCRATCH = re.compile(r"\..*\.(\d+)-[0-9a-f]+\.tmp")
_OLD = 24 * 3600.0  # seconds after which a scratch file or an unfinished build counts as forgotten


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that nobody needs, or nobody can read."""

    path: Path
    reason: str
    size: int  # bytes
    aside: Path | None = None  # where it is kept instead of being deleted


def find_leftovers(folder: Path) -> Iterator[Leftover]:
    """All leftovers in a registry's folder; domains that can be read lose none of their own."""
    yield from _scratch_files(folder)
    for home in sorted(entry for entry in folder.iterdir() if is_name(entry.name) and entry.is_dir()):
        index = home / INDEX_FILE
        if not has_index(home):
            if _is_forgotten(home) and not _is_busy(home):
                yield Leftover(
                    home, "token cache of a domain that is gone or was never finished", total_size(home)
                )
            continue
        try:
            table = parse_index(home, read_record(index)).path
        except PermissionError:
            continue  # nobody knows what is in it
        except PARSE_ERRORS:
            if _is_busy(home):
                continue
            aside = folder / _ASIDE / f"{home.name}-{time.strftime('%Y%m%d-%H%M%S')}"
            yield Leftover(home, "its index cannot be read", total_size(home), aside)
            continue
        yield from _scratch_files(home)
        for counted in sorted(home.glob(_COUNTING)):
            if _is_forgotten(counted) and not _is_busy(home):
                yield Leftover(counted, "a count in tasks that nobody goes on with", total_size(counted))
        for other in sorted(home.glob(TABLE_PATTERN)):
            if other != table:
                yield Leftover(other, "no index names this table", total_size(other))


def _scratch_files(folder: Path) -> Iterator[Leftover]:
    """Unfinished files of processes that are gone."""
    for file in sorted(folder.glob(".*.tmp")):
        match = _SCRATCH.fullmatch(file.name)
        if match and (not is_running(int(match[1])) or _age(file) > _OLD):
            yield Leftover(file, "scratch file of a process that is gone", total_size(file))


def _is_forgotten(home: Path) -> bool:
    """Whether nothing in a folder changed for long."""
    return all(_age(path) > _OLD for path in [home, *home.rglob("*")])


def _is_busy(home: Path) -> bool:
    """Whether a build is at work in a domain's folder."""
    if len(list(home.glob(".*.tmp"))) > len(list(_scratch_files(home))):
        return True
    if not (home / BUILD_LOCK).exists():
        return False
    try:
        with hold_lock(home / BUILD_LOCK, patience=0):
            return False
    except (OSError, UserError):
        return True


def _age(path: Path) -> float:
    """Seconds since a file changed; none if it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def total_size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):
            total += file.lstat().st_size if not file.is_dir() else 0
    return total


def remove_leftover(leftover: Leftover) -> None:
    """Delete a leftover, or move it to where it is kept; OSError if the system does not let it."""
    if leftover.aside is not None:
        leftover.aside.parent.mkdir(mode=0o700, exist_ok=True)
        leftover.path.rename(leftover.aside)
    elif leftover.path.is_dir():
        shutil.rmtree(leftover.path)
    else:
        leftover.path.unlink()


def remove_superseded(home: Path, current: Path) -> None:
    """Delete what a domain's builds left; what cannot be deleted now is deleted next time."""
    for old in home.glob(TABLE_PATTERN):
        if old != current:
            with suppress(OSError):
                old.unlink()
    for scratch in _scratch_files(home):
        with suppress(OSError):
            remove_leftover(scratch)

"""What builds, crashes and removed tables left in a registry's folder, and how to clean it up.

In: the registry's folder. Out: leftovers, each with its size; `remove_leftover` acts on one. Knows no tables.
The caller holds the registry's lock, so that what is being moved into place is not mistaken for a leftover.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ngram_builders.errors import UserError
from ngram_builders.registry.locks import hold_lock
from ngram_builders.registry.ngram_table import (
    INDEX_FILE,
    PARSE_ERRORS,
    TABLE_PATTERN,
    has_index,
    is_name,
    parse_index,
    read_record,
)
from ngram_builders.scratch import SCRATCH_PATTERN

BUILD_LOCK = ".building"  # held by a build in its table's folder
TASKS_PATTERN = "*.counting"  # what a distributed build has done so far
_TASKS_ABANDONED_SECONDS = 7 * 24 * 3600.0  # without a change: its jobs may wait in a queue for days
_ABANDONED_SECONDS = 24 * 3600.0  # without a change, for a scratch file or an unfinished build


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that is not needed."""

    path: Path
    reason: str
    size: int  # bytes


def find_leftovers(folder: Path) -> Iterator[Leftover]:
    """Find all leftovers in a registry's folder; readable tables lose nothing that they use."""
    yield from _scratch_files(folder)
    for home in sorted(entry for entry in folder.iterdir() if is_name(entry.name) and entry.is_dir()):
        if not has_index(home):
            has_tasks = any(home.glob(TASKS_PATTERN))
            seconds = _TASKS_ABANDONED_SECONDS if has_tasks else _ABANDONED_SECONDS
            if _is_abandoned(home, seconds) and not _is_building(home):
                yield Leftover(home, "token cache of a table that was removed or never finished", total_size(home))
            continue
        try:
            current = parse_index(home, read_record(home / INDEX_FILE)).paths
        except PARSE_ERRORS:
            continue  # nobody knows what it needs; `ngrams list` tells of it
        yield from _scratch_files(home)
        for tasks in sorted(home.glob(TASKS_PATTERN)):
            if _is_abandoned(tasks, _TASKS_ABANDONED_SECONDS) and not _is_building(home):
                yield Leftover(tasks, "an abandoned distributed build", total_size(tasks))
        for old in sorted(home.glob(TABLE_PATTERN)):
            if old not in current:
                yield Leftover(old, "a table that no index names", total_size(old))


def _scratch_files(folder: Path) -> Iterator[Leftover]:
    """Unfinished files that nobody has written to for long: whose they are, another machine may know."""
    for file in sorted(folder.glob(SCRATCH_PATTERN)):
        if _age(file) > _ABANDONED_SECONDS:
            yield Leftover(file, "unfinished file of a process that has ended", total_size(file))


def _is_abandoned(home: Path, seconds: float) -> bool:
    """Whether nothing in a folder has changed for so long."""
    return all(_age(path) > seconds for path in chain([home], home.rglob("*")))


def _is_building(home: Path) -> bool:
    """Whether a build is running in a table's folder."""
    if not (home / BUILD_LOCK).exists():
        return False
    try:
        with hold_lock(home / BUILD_LOCK, timeout=0):
            return False
    except (OSError, UserError):
        return True


def _age(path: Path) -> float:
    """Seconds since a file changed; 0 if it is gone."""
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
    """Delete a leftover; OSError if the system does not allow it."""
    if leftover.path.is_dir():
        shutil.rmtree(leftover.path)
    else:
        leftover.path.unlink()


def remove_superseded(home: Path, current: Collection[Path]) -> None:
    """Delete a table's older tables and unfinished files; what cannot be deleted now is deleted next time."""
    for old in home.glob(TABLE_PATTERN):
        if old not in current:
            with suppress(OSError):
                old.unlink()
    for scratch in _scratch_files(home):
        with suppress(OSError):
            remove_leftover(scratch)

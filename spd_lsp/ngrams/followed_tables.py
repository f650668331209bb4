"""The tables in use, each with what changed in its files since it was built, and when to look at them again.

In: a table's contents, and time. Out: its `TableSync`, scanned now and then in steps between requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from ngram_builders.counting.token_cache import IndexedFiles
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.table.format import Columns
from spd_lsp.ngrams.file_sync import TableSync

Steps = Iterator[None]  # background work that can pause after each step
Read = Callable[[], IndexedFiles | None]
Follow = Callable[[NgramTable, IndexedFiles], None]

MAX_FILES_AT_ONCE = 2_000  # of a table, listed before a completion; about 5 ms
_MIN_SCAN_PAUSE = 30.0  # seconds between two scans of a table's files
_SCAN_PAUSE_FACTOR = 100  # pause before the next scan, in durations of the last one, what it found not counted
_CHECKOUT_PAUSE_FACTOR = 10  # or once git has changed files: other programs write its index at every save, too
_MAX_CHECKOUT_PAUSE = 0.9  # seconds, unless a scan takes longer; the idle worker looks once a second


@dataclass(frozen=True, slots=True)
class Due:
    """When a table's files are to be scanned again, on the monotonic clock."""

    soonest: float  # if git has changed files
    latest: float  # in any case


class FollowedTables:
    """The tables in use, by name, kept up to date with their files."""

    def __init__(self, queue: deque[Steps]) -> None:
        self.queue = queue
        self.files: dict[str, tuple[Path, ...]] = {}  # of each table in use
        self.synced: dict[str, TableSync] = {}  # those whose contents are known
        self.due: dict[str, Due] = {}
        self.reported: set[str] = set()  # tables of which many files are said to have changed

    def columns(self, table: NgramTable, read: Read, follow: Follow) -> tuple[Columns, ...]:
        """Return the overlay of a table; without contents, which `read` returns, there is none.

        Contents that were read are given to `follow`, which is to `add` a sync: at once if the files are few.
        """
        files = (table.path, *table.segments)
        if self.files.get(table.name) != files or self._is_unknown_and_due(table.name):
            self._start(table, files, read, follow)
        sync = self.synced.get(table.name)
        return sync.ledger.overlay.columns if sync else ()

    def outdated(self) -> list[NgramTable]:
        """Return the tables that should be rebuilt, once git is done with their files."""
        return [sync.table for sync in self.synced.values() if sync.is_outdated and not sync.is_being_changed]

    def add(self, sync: TableSync) -> None:
        """Keep a table in sync from now on."""
        now = monotonic()
        self.synced[sync.table.name] = sync
        self.due[sync.table.name] = Due(now, now)

    def retain(self, names: Iterable[str]) -> bool:
        """Drop all other tables; whether one of them was in sync."""
        others = self.files.keys() - set(names)
        was_synced = not others.isdisjoint(self.synced)
        for name in others:
            del self.files[name]
            self.synced.pop(name, None)
        return was_synced

    def forget(self, name: str) -> None:
        """Read a table's contents again when it is next asked for, and begin anew."""
        self.files.pop(name, None)
        self.synced.pop(name, None)

    def scan_soon(self) -> None:
        """Scan the files of all tables, also those that are being counted."""
        self.reported.update(self.synced)

    def due_scans(self) -> list[Steps]:
        """Return the scans that are due: after a while, or as git has changed files, once it is done with them."""
        now = monotonic()
        due = [name for name, sync in self.synced.items() if self._is_due(name, sync, now)]
        return [self._scan(name) for name in due if not self.synced[name].is_being_changed]

    def _is_unknown_and_due(self, name: str) -> bool:
        return name not in self.synced and self.due[name].latest <= monotonic()

    def _is_due(self, name: str, sync: TableSync, now: float) -> bool:
        due = self.due[name]
        return due.latest <= now or self._is_outdated(name, sync, now)

    def _is_outdated(self, name: str, sync: TableSync, now: float) -> bool:
        """Whether files have changed since the last scan, most likely."""
        return name in self.reported or (self.due[name].soonest <= now and sync.is_checked_out_anew)

    def _start(self, table: NgramTable, files: tuple[Path, ...], read: Read, follow: Follow) -> None:
        """Read a table's contents: now if it has few files, else between requests."""
        now = monotonic()
        self.files[table.name] = files
        self.due[table.name] = Due(now, now + _MIN_SCAN_PAUSE)
        self.synced.pop(table.name, None)
        steps = self._read(table, files, read, follow)
        self.queue.append(steps)
        if table.files <= MAX_FILES_AT_ONCE:
            deque(steps, maxlen=0)

    def _read(self, table: NgramTable, files: tuple[Path, ...], read: Read, follow: Follow) -> Steps:
        contents = read()
        yield
        if contents is not None and self.files.get(table.name) == files:
            follow(table, contents)

    def _scan(self, name: str) -> Steps:
        """Scan a table's files, schedule the next scan, and count what is found, or until that is old."""
        if (sync := self.synced.get(name)) is None:
            return
        self.reported.discard(name)
        spent = 0.0
        started = monotonic()
        for step in sync.list_changes():
            spent += monotonic() - started
            yield step
            started = monotonic()
        spent += monotonic() - started
        now = monotonic()
        pause = min(_CHECKOUT_PAUSE_FACTOR * spent, max(_MAX_CHECKOUT_PAUSE, spent))
        self.due[name] = Due(now + pause, now + max(_MIN_SCAN_PAUSE, _SCAN_PAUSE_FACTOR * spent))
        for step in sync.learn():
            yield step
            if self._is_outdated(name, sync, monotonic()):
                return

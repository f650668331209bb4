"""What is kept beside a table: ids of texts, states of files, and which files the table was made of.

In: digests, ids, paths. Out: the same again. Knows no text and counts nothing. All of it can be made again from
the sources, so a damaged or missing database costs time and never a build.

SQLite with a write-ahead log: a killed build keeps its finished batches, servers read while a build writes, and
deleted content is overwritten.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.counting.layers import IndexedFile, documents_of, files_after
from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import SourceFile
from ngram_builders.sources.secret_rules import RULES

CACHE_FILE = "tokens.sqlite"
_VERSION = 5  # 1 kept texts with the line ends of their files, 2 with the secrets in them, 3 and 4 skipped others
LOCK_TIMEOUT_SECONDS = 5.0  # for another process to end its transaction
_UNAVAILABLE = ("locked", "readonly", "read-only", "unable to open")  # errors of a database that may be sound
_MAX_VALUES = 500  # in one query; every SQLite takes 999
_SCHEMA = """
CREATE TABLE IF NOT EXISTS texts (
  fingerprint TEXT, digest BLOB, tokens INTEGER, crc INTEGER, ids BLOB, PRIMARY KEY (fingerprint, digest)
);
CREATE TABLE IF NOT EXISTS states (
  path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, digest BLOB, fault TEXT,
  masked INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contents (
  name TEXT, path BLOB, size INTEGER, mtime_ns INTEGER, digest BLOB, language TEXT, PRIMARY KEY (name, path)
) WITHOUT ROWID;
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileState:
    """What a file turned out to be: a text with this digest, or no source for this reason."""

    file: SourceFile
    digest: bytes
    skip_reason: str | None
    masked: int = 0  # lines that hold a secret


class TokenCache:
    """The database of one table, for the tokenizer with this fingerprint. Without a path nothing is kept."""

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self.problem: str | None = None  # why earlier content is unknown, or why nothing is kept now
        self.replaced = False
        self.base: sqlite3.Connection | None = None
        self._attempt(lambda base: None)

    def __enter__(self) -> TokenCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        if self.base is not None:
            with suppress(sqlite3.Error):
                self.base.close()
        self.base = None

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something with the database; if that fails, with an empty one."""
        while True:
            try:
                if self.base is None:
                    self.base = _connect(self.path)
                return work(self.base)
            except sqlite3.Error as error:
                self.close()
                self._recover(error)

    def _write(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Do something in one transaction."""

        def write(base: sqlite3.Connection) -> None:
            with base:  # all or nothing
                base.execute("BEGIN IMMEDIATE")
                work(base)

        self._attempt(write)

    def _recover(self, error: sqlite3.Error) -> None:
        """Replace a damaged database by an empty one; by a temporary one where none can be had there."""
        if self.path is None or "is full" in str(error):
            folder = "the folder for temporary files" if self.path is None else str(self.path.parent)
            raise UserError(
                f"cannot write to {folder}: {error}; free space there and run the same command again"
            ) from error
        self.problem = f"cannot use the cached tokens in {self.path}: {error}"
        if self.replaced or any(cause in str(error) for cause in _UNAVAILABLE):
            self.path = None
            self.problem += "; continued without a cache"
            return
        self.replaced = True
        self.problem += "; started a new cache"
        with suppress(OSError):
            remove(self.path)

    def token_counts(self) -> dict[bytes, int]:
        """Return the number of tokens of every cached text, by digest."""
        query = "SELECT digest, tokens FROM texts WHERE fingerprint = ?"
        return self._attempt(lambda base: dict(base.execute(query, (self.fingerprint,)).fetchall()))

    def load_ids(self, digests: Sequence[bytes]) -> dict[bytes, Ints]:
        """Load the ids of texts by digest; missing and damaged ones are left out."""
        ids: dict[bytes, Ints] = {}
        for start in range(0, len(digests), _MAX_VALUES):
            some = digests[start : start + _MAX_VALUES]
            ids.update(self._attempt(partial(_select_ids, self.fingerprint, some)))
        return ids

    def file_states(self) -> dict[str, FileState]:
        """Return the known states of files, by path."""
        rows = self._attempt(lambda base: base.execute("SELECT * FROM states").fetchall())
        return {
            path: FileState(SourceFile(path, *numbers), digest, skip_reason, masked)
            for path, (*numbers, digest, skip_reason, masked) in ((os.fsdecode(row[0]), row[1:]) for row in rows)
        }

    def add(self, texts: Mapping[bytes, Ints], states: Iterable[FileState], unsettled: Iterable[str] = ()) -> None:
        """Add ids by digest and states of files, and drop those of unsettled paths: all or nothing."""
        packed = [(digest, len(ids), _pack(ids)) for digest, ids in texts.items()]
        ids = [(self.fingerprint, digest, n, _checksum(digest, n, data), data) for digest, n, data in packed]
        rows = [
            (os.fsencode(s.file.path), *_state_numbers(s.file), s.digest, s.skip_reason, s.masked) for s in states
        ]

        def write(base: sqlite3.Connection) -> None:
            base.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?)", ids)
            base.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            base.executemany("DELETE FROM states WHERE path = ?", [(os.fsencode(path),) for path in unsettled])

        self._write(write)

    def record_files(self, table: str, files: Iterable[IndexedFile]) -> None:
        """Record which files the layer of that name was made of."""
        rows = [(table, os.fsencode(f.path), f.size, f.mtime_ns, f.digest, f.language) for f in files]

        def write(base: sqlite3.Connection) -> None:
            base.execute("DELETE FROM contents WHERE name = ?", (table,))
            base.executemany("INSERT INTO contents VALUES (?, ?, ?, ?, ?, ?)", rows)

        self._write(write)

    def indexed_files(self, table: str) -> list[IndexedFile]:
        """Return the files that a layer was made of; none if that is not known."""
        return self._attempt(partial(_select_files, table))

    def keep_only(self, layers: Sequence[str], paths: Collection[str]) -> None:
        """Delete all texts but those of the layers of these names, and the states of all files but these."""
        marks = ", ".join("?" * len(layers))

        def write(base: sqlite3.Connection) -> None:
            base.execute(f"DELETE FROM contents WHERE name NOT IN ({marks})", layers)
            base.execute(
                "DELETE FROM texts WHERE fingerprint != ? OR digest NOT IN (SELECT digest FROM contents)",
                (self.fingerprint,),
            )
            gone = {path for (path,) in base.execute("SELECT path FROM states")} - set(map(os.fsencode, paths))
            base.executemany("DELETE FROM states WHERE path = ?", [(path,) for path in gone])

        self._write(write)
        self._attempt(lambda base: base.execute("PRAGMA incremental_vacuum").fetchall())

    def drop_texts(self, digests: Iterable[bytes]) -> None:
        """Delete texts, so that their files are read again."""
        rows = [(digest,) for digest in digests]
        self._write(lambda base: base.executemany("DELETE FROM texts WHERE digest = ?", rows))


@dataclass(frozen=True, slots=True)
class IndexedFiles:
    """The files of a table, for a server. The database is open only during queries."""

    path: Path
    fingerprint: str
    files: dict[str, tuple[int, int, bytes]]  # size, modification time in nanoseconds and digest, by path
    documents: Sequence[Sequence[bytes | None]] = ()  # of each layer, see `documents_of`
    is_old: bool = False  # whether secrets were not masked, or by other rules

    def ids(self, digest: bytes) -> Ints | None:
        """Return the ids of the text with that digest, None if they are no longer known."""
        try:
            with closing(_connect_to_read(self.path)) as base:
                return _select_ids(self.fingerprint, [digest], base).get(digest)
        except sqlite3.Error:
            return None


def read_indexed_files(home: Path, layers: Sequence[str], fingerprint: str) -> IndexedFiles | None:
    """Read which files the table in a folder was made of, None if that is not known. Writes nothing."""
    try:
        with closing(_connect_to_read(home / CACHE_FILE)) as base:
            recorded = [_select_files(layer, base) for layer in layers]
            is_old = (_read_version(base), _read_rules(base)) != (_VERSION, RULES)
    except sqlite3.Error:
        return None
    if not all(recorded):
        return None
    states = files_after(recorded)
    files = {path: (f.size, f.mtime_ns, f.digest) for path, f in states[-1].items()}
    return IndexedFiles(home / CACHE_FILE, fingerprint, files, documents_of(states), is_old)


def _select_ids(fingerprint: str, digests: Sequence[bytes], base: sqlite3.Connection) -> dict[bytes, Ints]:
    """Select ids, without those that are damaged."""
    marks = ", ".join("?" * len(digests))
    query = f"SELECT digest, tokens, crc, ids FROM texts WHERE fingerprint = ? AND digest IN ({marks})"
    rows = base.execute(query, (fingerprint, *digests))
    return {digest: _unpack(data, n) for digest, n, crc, data in rows if _checksum(digest, n, data) == crc}


def _select_files(table: str, base: sqlite3.Connection) -> list[IndexedFile]:
    """Select the files of a table."""
    query = "SELECT path, size, mtime_ns, digest, language FROM contents WHERE name = ? ORDER BY path"
    return [IndexedFile(os.fsdecode(path), *rest) for path, *rest in base.execute(query, (table,))]


def _connect(path: Path | None) -> sqlite3.Connection:
    """Open a database to write to, created for its owner only if missing; without a path a temporary one."""
    if path is not None:
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    base = sqlite3.connect("" if path is None else path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None)
    try:
        version = _read_version(base)
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"it has format {version}, and this spd-lsp reads {_VERSION}")
        if version and _read_rules(base) != RULES:
            raise sqlite3.DatabaseError("its secrets were masked by other rules")
        base.execute("PRAGMA auto_vacuum = INCREMENTAL")
        base.execute("PRAGMA journal_mode = WAL").fetchone()
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute("PRAGMA secure_delete = ON").fetchone()
        if version == 0:
            numbers = f"PRAGMA user_version = {_VERSION}; PRAGMA application_id = {RULES};"
            base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {numbers} COMMIT;")
    except BaseException:
        base.close()
        raise
    return base


def _read_version(base: sqlite3.Connection) -> int:
    """Read the format of a database, 0 if it is new."""
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _read_rules(base: sqlite3.Connection) -> int:
    """Read the number of the rules by which secrets were masked."""
    return int(base.execute("PRAGMA application_id").fetchone()[0])


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing database. In a folder without write access nobody changes it."""
    if not path.exists():
        raise sqlite3.OperationalError("no such file")
    immutable = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
    uri = f"{path.resolve().as_uri()}?mode=ro{immutable}"
    return sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_SECONDS)


def remove(path: Path) -> None:
    """Delete a database with its log."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _pack(ids: Ints) -> bytes:
    """Pack ids in two bytes each, or four where one needs them."""
    narrow = len(ids) == 0 or (int(ids.min()) >= 0 and int(ids.max()) < 2**16)
    return ids.astype("<u2" if narrow else "<u4").tobytes()


def _unpack(data: bytes, tokens: int) -> Ints:
    """Unpack what `_pack` packed."""
    return np.frombuffer(data, "<u2" if len(data) == 2 * tokens else "<u4")


def _checksum(digest: bytes, tokens: int, data: bytes) -> int:
    """Checksum of a row, to detect damage."""
    return zlib.crc32(data, zlib.crc32(b"%s%d" % (digest, tokens)))


def _state_numbers(file: SourceFile) -> tuple[int, int, int, int]:
    """Return a file's numbers as SQLite can hold them; some systems' inodes take 64 bits."""
    return file.size, file.mtime_ns, file.ctime_ns, file.inode & 2**63 - 1

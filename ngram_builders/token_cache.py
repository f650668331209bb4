"""What is kept beside a table: ids of texts, states of files, and which files the table was made of.

In: digests, ids, paths. Out: the same again. Knows no text and counts nothing. All of it can be made again from
the sources, so a build deletes a damaged database and begins anew.

SQLite with a write-ahead log: a killed build keeps its finished batches, servers read while a build writes, and
deleted content is overwritten.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.sources.discovery import SourceFile
from ngram_builders.sources.secret_rules import RULES

CACHE_FILE = "tokens.sqlite"
_SCHEMA = """
CREATE TABLE texts (fingerprint TEXT, digest BLOB, tokens INTEGER, ids BLOB, PRIMARY KEY (fingerprint, digest));
CREATE TABLE states (
  path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, digest BLOB, fault TEXT, masked INTEGER
) WITHOUT ROWID;
CREATE TABLE contents (
  shard TEXT, path BLOB, size INTEGER, mtime_ns INTEGER, digest BLOB, PRIMARY KEY (shard, path)
) WITHOUT ROWID;
"""
_VERSION = zlib.crc32(_SCHEMA.encode(), RULES) >> 1  # with other rules, other lines were masked
_LOCK_TIMEOUT_SECONDS = 5.0  # for another process to end its transaction

IndexedState = tuple[int, int, bytes]  # a file's size, modification time in nanoseconds, and digest


@dataclass(frozen=True, slots=True)
class FileState:
    """What a file turned out to be: a text with this digest, which copies share, or no source for this reason."""

    file: SourceFile
    digest: bytes
    skip_reason: str | None
    masked: int = 0  # lines that hold a secret


def text_digest(data: bytes) -> bytes:
    """Return the digest by which equal texts are known."""
    return hashlib.blake2b(data, digest_size=16).digest()


class TokenCache:
    """The database of one table, for the tokenizer with this fingerprint; without a path a temporary one.

    Its methods raise sqlite3.Error where the database is damaged, locked or cannot be written.
    """

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.base = _connect(path)

    def __enter__(self) -> TokenCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.base.close()

    def token_counts(self) -> dict[bytes, int]:
        """Return the number of tokens of every cached text, by digest."""
        query = "SELECT digest, tokens FROM texts WHERE fingerprint = ?"
        return dict(self.base.execute(query, (self.fingerprint,)).fetchall())

    def ids(self, digest: bytes) -> Ints:
        """Return the ids of a cached text."""
        if (ids := _select_ids(self.base, self.fingerprint, digest)) is None:
            raise sqlite3.DatabaseError("it has lost the tokens of a text")
        return ids

    def file_states(self) -> dict[str, FileState]:
        """Return the known states of files, by path."""
        rows = self.base.execute("SELECT * FROM states").fetchall()
        states = [
            FileState(SourceFile(os.fsdecode(path), *numbers), digest, skip_reason, masked)
            for path, *numbers, digest, skip_reason, masked in rows
        ]
        return {state.file.path: state for state in states}

    def add(self, texts: Mapping[bytes, Ints], states: Iterable[FileState], unsettled: Iterable[str] = ()) -> None:
        """Add ids by digest and states of files, and drop those of unsettled paths: all or nothing."""
        kinds = {digest: "<u2" if ids.max(initial=0) < 2**16 else "<u4" for digest, ids in texts.items()}
        packed = [
            (self.fingerprint, one, len(ids), ids.astype(kinds[one]).tobytes()) for one, ids in texts.items()
        ]
        rows = [(os.fsencode(s.file.path), *s.file[1:], s.digest, s.skip_reason, s.masked) for s in states]
        with self.base:
            self.base.execute("BEGIN IMMEDIATE")
            self.base.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", packed)
            self.base.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._drop_states(map(os.fsencode, unsettled))

    def record_files(self, shard: str, files: Iterable[FileState]) -> None:
        """Record which files the shard of that name was made of."""
        rows = [(shard, os.fsencode(f.file.path), f.file.size, f.file.mtime_ns, f.digest) for f in files]
        with self.base:
            self.base.execute("BEGIN IMMEDIATE")
            self.base.execute("DELETE FROM contents WHERE shard = ?", (shard,))
            self.base.executemany("INSERT INTO contents VALUES (?, ?, ?, ?, ?)", rows)

    def keep_only(self, shards: Sequence[str], paths: Collection[str]) -> None:
        """Delete all texts but those of the shards of these names, and the states of all files but these."""
        marks = ", ".join("?" * len(shards))
        with self.base:
            self.base.execute("BEGIN IMMEDIATE")
            self.base.execute(f"DELETE FROM contents WHERE shard NOT IN ({marks})", shards)
            others = "fingerprint != ? OR digest NOT IN (SELECT digest FROM contents)"
            self.base.execute(f"DELETE FROM texts WHERE {others}", (self.fingerprint,))
            known = {path for (path,) in self.base.execute("SELECT path FROM states")}
            self._drop_states(known.difference(map(os.fsencode, paths)))
        self.base.execute("PRAGMA incremental_vacuum").fetchall()

    def _drop_states(self, paths: Iterable[bytes]) -> None:
        self.base.executemany("DELETE FROM states WHERE path = ?", [(path,) for path in paths])


@dataclass(frozen=True, slots=True)
class IndexedFiles:
    """The files of a table, for a server. The database is open only during queries."""

    path: Path
    fingerprint: str
    files: dict[str, IndexedState]  # by path
    documents: Sequence[Sequence[bytes]] = ()  # the texts of each shard, as they are numbered there
    is_old: bool = False  # whether secrets were not masked, or by other rules

    def ids(self, digest: bytes) -> Ints | None:
        """Return the ids of the text with that digest, None if they are no longer known."""
        try:
            with closing(_connect_to_read(self.path)) as base:
                return _select_ids(base, self.fingerprint, digest)
        except sqlite3.Error:
            return None


def read_indexed_files(paths: Sequence[Path], fingerprint: str) -> IndexedFiles | None:
    """Read which files a table of these shards was made of, None if that is not known. Writes nothing."""
    file = paths[0].with_name(CACHE_FILE)
    try:
        with closing(_connect_to_read(file)) as base:
            shards = [_select_files(base, path.name) for path in paths]
            is_old = _read_version(base) != _VERSION
    except sqlite3.Error:
        return None
    if not all(shards):
        return None
    files = {path: state for shard in shards for path, state in shard.items()}
    documents = [sorted({digest for _, _, digest in shard.values()}) for shard in shards]
    return IndexedFiles(file, fingerprint, files, documents, is_old)


def _select_ids(base: sqlite3.Connection, fingerprint: str, digest: bytes) -> Ints | None:
    """Select the ids of a text."""
    query = "SELECT tokens, ids FROM texts WHERE fingerprint = ? AND digest = ?"
    found = base.execute(query, (fingerprint, digest)).fetchone()
    return found and np.frombuffer(found[1], "<u2" if len(found[1]) == 2 * found[0] else "<u4")


def _select_files(base: sqlite3.Connection, shard: str) -> dict[str, IndexedState]:
    """Select the files of a shard."""
    query = "SELECT path, size, mtime_ns, digest FROM contents WHERE shard = ? ORDER BY path"
    return {os.fsdecode(path): tuple(state) for path, *state in base.execute(query, (shard,))}


def _connect(path: Path | None) -> sqlite3.Connection:
    """Open a database to write to, created for its owner only if missing; without a path a temporary one."""
    if path is not None:
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    base = sqlite3.connect("" if path is None else path, timeout=_LOCK_TIMEOUT_SECONDS, isolation_level=None)
    try:
        version = _read_version(base)
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError("another version of spd-lsp wrote it, or masked secrets by other rules")
        base.execute("PRAGMA auto_vacuum = INCREMENTAL")
        base.execute("PRAGMA journal_mode = WAL").fetchone()
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute("PRAGMA secure_delete = ON").fetchone()
        if version == 0:
            base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
    except BaseException:
        base.close()
        raise
    return base


def _read_version(base: sqlite3.Connection) -> int:
    """Read the format of a database, 0 if it is new."""
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing database. In a folder without write access nobody changes it."""
    immutable = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
    uri = f"{path.resolve().as_uri()}?mode=ro{immutable}"
    return sqlite3.connect(uri, uri=True, timeout=_LOCK_TIMEOUT_SECONDS)


def remove_cache(path: Path) -> None:
    """Delete a database with its log."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()

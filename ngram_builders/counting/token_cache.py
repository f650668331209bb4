"""What a domain keeps beside its table: ids of texts, states of files, and what the table was made of.

Comes in: digests, ids, paths. Goes out: the same again. Knows no text and counts nothing. All of it can be made
anew from the sources, so a database that is damaged or cannot be had costs time and never a build.

SQLite with a write-ahead log: each batch of a build that is killed is there when it is run again, servers read
while a build writes, and what was deleted is overwritten.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import SourceFile
from ngram_builders.sources.secret_rules import RULES

FILE = "tokens.sqlite"
VERSION = 3  # 1 kept texts with the line ends of their files, 2 with the secrets in them
WAIT = 5.0  # seconds for another process to end its transaction
_ELSEWHERE = ("locked", "readonly", "read-only", "unable to open")  # errors of a database that may be sound
_MANY = 500  # values in one question, of 999 that every SQLite takes
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
class State:
    """What a file was found to be: a text with this digest, or no source for this reason."""

    found: SourceFile
    digest: bytes
    fault: str | None
    masked: int = 0  # lines of the text that are not kept, as they hold a secret


@dataclass(frozen=True, slots=True)
class Document:
    """A file that a table was made of. Copies have one digest."""

    path: str
    size: int
    mtime_ns: int
    digest: bytes
    language: str


class Store:
    """The database of one domain, for the tokenizer with this fingerprint. Without a path nothing is kept."""

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self.problem: str | None = None  # why nothing of before is known, or nothing of now is kept
        self.renewed = False
        self.base: sqlite3.Connection | None = None
        self.attempt(lambda base: None)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        if self.base is not None:
            with suppress(sqlite3.Error):
                self.base.close()
        self.base = None

    def attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something with the database; if it fails, with a new one, where nothing is known."""
        while True:
            try:
                if self.base is None:
                    self.base = connect(self.path)
                return work(self.base)
            except sqlite3.Error as error:
                self.close()
                self.start_anew(error)

    def start_anew(self, error: sqlite3.Error) -> None:
        """Have an empty database in the place of a damaged one; one without a name where none can be had there."""
        if self.path is None or "is full" in str(error):
            where = "the folder for temporary files" if self.path is None else str(self.path.parent)
            raise UserError(
                f"cannot write to {where}: {error}; free space there and run the same command again"
            ) from error
        self.problem = f"expected the tokens of earlier builds in {self.path}, found: {error}"
        if self.renewed or any(cause in str(error) for cause in _ELSEWHERE):
            self.path = None
            self.problem += "; went on without"
            return
        self.renewed = True
        self.problem += "; began a new file"
        with suppress(OSError):
            remove(self.path)

    def known(self) -> dict[bytes, int]:
        """How many tokens each text has whose ids are kept, by digest."""
        asked = "SELECT digest, tokens FROM texts WHERE fingerprint = ?"
        return self.attempt(lambda base: dict(base.execute(asked, (self.fingerprint,)).fetchall()))

    def ids(self, digests: Sequence[bytes]) -> dict[bytes, Ints]:
        """The ids of texts by digest; those that are not kept, or are damaged, are missing."""
        found: dict[bytes, Ints] = {}
        for start in range(0, len(digests), _MANY):
            found.update(self.attempt(partial(_select_ids, self.fingerprint, digests[start : start + _MANY])))
        return found

    def states(self) -> dict[str, State]:
        """What is known of files, by path."""
        rows = self.attempt(lambda base: base.execute("SELECT * FROM states").fetchall())
        return {
            path: State(SourceFile(path, *numbers), digest, fault, masked)
            for path, (*numbers, digest, fault, masked) in ((os.fsdecode(row[0]), row[1:]) for row in rows)
        }

    def keep(self, texts: Mapping[bytes, Ints], states: Iterable[State], unsure: Iterable[str] = ()) -> None:
        """Keep a batch, all or nothing: ids by digest, and what files are. Of unsure paths nothing is known."""
        packed = [(digest, len(ids), pack(ids)) for digest, ids in texts.items()]
        ids = [(self.fingerprint, digest, n, _checksum(digest, n, data), data) for digest, n, data in packed]
        rows = [(os.fsencode(s.found.path), *fit(s.found), s.digest, s.fault, s.masked) for s in states]

        def write(base: sqlite3.Connection) -> None:
            with _transaction(base):
                base.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?)", ids)
                base.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                base.executemany("DELETE FROM states WHERE path = ?", [(os.fsencode(path),) for path in unsure])

        self.attempt(write)

    def record(self, name: str, documents: Iterable[Document]) -> None:
        """Write down what the table of that name was made of."""
        rows = [(name, os.fsencode(d.path), d.size, d.mtime_ns, d.digest, d.language) for d in documents]

        def write(base: sqlite3.Connection) -> None:
            with _transaction(base):
                base.execute("DELETE FROM contents WHERE name = ?", (name,))
                base.executemany("INSERT INTO contents VALUES (?, ?, ?, ?, ?, ?)", rows)

        self.attempt(write)

    def contents(self, name: str) -> list[Document]:
        """What a table was made of; nothing if that is not known."""
        return self.attempt(partial(_select_contents, name))

    def forget(self, name: str, paths: Collection[str]) -> None:
        """Delete all texts but those of the table of that name, and the states of all files but these."""

        def write(base: sqlite3.Connection) -> None:
            with _transaction(base):
                base.execute("DELETE FROM contents WHERE name != ?", (name,))
                base.execute(
                    "DELETE FROM texts WHERE fingerprint != ? OR digest NOT IN (SELECT digest FROM contents)",
                    (self.fingerprint,),
                )
                gone = {path for (path,) in base.execute("SELECT path FROM states")} - set(map(os.fsencode, paths))
                base.executemany("DELETE FROM states WHERE path = ?", [(path,) for path in gone])
            base.execute("PRAGMA incremental_vacuum").fetchall()

        self.attempt(write)

    def drop(self, digests: Iterable[bytes]) -> None:
        """Delete texts, so that they are read again."""

        def write(base: sqlite3.Connection) -> None:
            with _transaction(base):
                base.executemany("DELETE FROM texts WHERE digest = ?", [(digest,) for digest in digests])

        self.attempt(write)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a domain's table was made of, for a server. The database is only open while it is asked."""

    path: Path
    fingerprint: str
    files: dict[str, tuple[int, int, bytes]]  # size, time of change in nanoseconds and digest, by path
    is_old: bool = False  # whether secrets were not masked, or by other rules

    def ids(self, digest: bytes) -> Ints | None:
        """The ids of the text with that digest, None if they are not known any more."""
        try:
            with closing(_connect_to_read(self.path)) as base:
                return _select_ids(self.fingerprint, [digest], base).get(digest)
        except sqlite3.Error:
            return None


def read_contents(home: Path, table: str, fingerprint: str) -> Contents | None:
    """What the table of that name in a domain's folder was made of, None if that is not known. Writes nothing."""
    try:
        with closing(_connect_to_read(home / FILE)) as base:
            documents = _select_contents(table, base)
            is_old = (_version_of(base), _rules_of(base)) != (VERSION, RULES)
    except sqlite3.Error:
        return None
    files = {d.path: (d.size, d.mtime_ns, d.digest) for d in documents}
    return Contents(home / FILE, fingerprint, files, is_old) if files else None


def _select_ids(fingerprint: str, digests: Sequence[bytes], base: sqlite3.Connection) -> dict[bytes, Ints]:
    """The sound ones of some ids."""
    marks = ", ".join("?" * len(digests))
    asked = f"SELECT digest, tokens, crc, ids FROM texts WHERE fingerprint = ? AND digest IN ({marks})"
    rows = base.execute(asked, (fingerprint, *digests))
    return {digest: unpack(data, n) for digest, n, crc, data in rows if _checksum(digest, n, data) == crc}


def _select_contents(name: str, base: sqlite3.Connection) -> list[Document]:
    """What a table was made of."""
    asked = "SELECT path, size, mtime_ns, digest, language FROM contents WHERE name = ? ORDER BY path"
    return [Document(os.fsdecode(path), *rest) for path, *rest in base.execute(asked, (name,))]


def connect(path: Path | None) -> sqlite3.Connection:
    """A database to write to, made if it is missing, its owner's only; without a path one that does not last."""
    if path is not None:
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    base = sqlite3.connect("" if path is None else path, timeout=WAIT, isolation_level=None)
    try:
        version = _version_of(base)
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"format {version}, this spd-lsp reads {VERSION}, which masks secrets")
        if version and _rules_of(base) != RULES:
            raise sqlite3.DatabaseError("that other lines were masked as secrets than this spd-lsp masks")
        base.execute("PRAGMA auto_vacuum = INCREMENTAL")
        base.execute("PRAGMA journal_mode = WAL").fetchone()
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute("PRAGMA secure_delete = ON").fetchone()
        if version == 0:
            told = f"PRAGMA user_version = {VERSION}; PRAGMA application_id = {RULES};"
            base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {told} COMMIT;")
    except BaseException:
        base.close()
        raise
    return base


def _version_of(base: sqlite3.Connection) -> int:
    """The format of a database, 0 if it is new."""
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _rules_of(base: sqlite3.Connection) -> int:
    """What tells the rules by which lines of the texts were masked."""
    return int(base.execute("PRAGMA application_id").fetchone()[0])


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A database that is there already. In a folder without write access nobody changes it."""
    if not path.exists():
        raise sqlite3.OperationalError("no such file")
    unchanging = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{unchanging}", uri=True, timeout=WAIT)


def remove(path: Path) -> None:
    """Delete a database with its log."""
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)


@contextmanager
def _transaction(base: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    base.execute("BEGIN IMMEDIATE")
    try:
        yield
        base.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            base.execute("ROLLBACK")
        raise


def pack(ids: Ints) -> bytes:
    """Ids in two bytes each, or four where one needs them."""
    narrow = len(ids) == 0 or (int(ids.min()) >= 0 and int(ids.max()) < 2**16)
    return ids.astype("<u2" if narrow else "<u4").tobytes()


def unpack(data: bytes, tokens: int) -> Ints:
    """What `pack` packed."""
    return np.frombuffer(data, "<u2" if len(data) == 2 * tokens else "<u4")


def _checksum(digest: bytes, tokens: int, data: bytes) -> int:
    """Tells a row that is as it was written from a damaged one."""
    return zlib.crc32(data, zlib.crc32(b"%s%d" % (digest, tokens)))


def fit(found: SourceFile) -> tuple[int, int, int, int]:
    """A file's numbers as SQLite can hold them; some systems' inodes take 64 bits."""
    return found.size, found.mtime_ns, found.ctime_ns, found.inode & 2**63 - 1

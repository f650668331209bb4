"""A sorted run in a file: all records, then all counts. It is read in parts, and never mapped.

What was read of a mapped file would count as memory of this process.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ngram_builders.errors import UserError
from ngram_builders.ngrams import Run
from ngram_builders.table.format import replace_file

RECORD_BYTES = 12
_COPY_BYTES = 1 << 22


class _OpenFile:
    """A file that is closed once no run needs it."""

    def __init__(self, file: IO[bytes], name: object) -> None:
        self.file = file
        self.name = name

    def __del__(self) -> None:
        self.file.close()

    def read(self, dtype: type[Any], offset: int, length: int) -> npt.NDArray[Any]:
        """Read so many numbers; UserError if the file ends before."""
        values = np.empty(length, dtype=dtype)
        self.file.seek(offset)
        if self.file.readinto(values.view(np.uint8).data) != values.nbytes:  # type: ignore[attr-defined]
            raise _cut_short(self.name)
        return values


class StoredRun:
    """A run in a file, or a part of one."""

    def __init__(self, file: _OpenFile, total: int, start: int, end: int) -> None:
        self.file = file
        self.total = total  # records in the file
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    def part(self, start: int, end: int) -> StoredRun:
        """Return a part of it, still in the file."""
        return StoredRun(self.file, self.total, self.start + start, self.start + end)

    def record(self, place: int) -> int:
        """Return one record."""
        return int(self.file.read(np.uint64, 8 * (self.start + place), 1)[0])

    def find(self, record: int) -> int:
        """Return the place of the first record that is not below this one."""
        return bisect_left(range(len(self)), record, key=self.record)

    def load(self, start: int, end: int) -> Run:
        """Return a part of it in memory."""
        first, length = self.start + start, end - start
        counts = 8 * self.total + 4 * first
        return Run(self.file.read(np.uint64, 8 * first, length), self.file.read(np.int32, counts, length))


def write_run(path: Path, pieces: Iterable[Run]) -> int:
    """Write sorted pieces to one file, one piece in memory at a time -> n-grams."""
    replace_file(path, _parts(pieces, path.parent))
    return path.stat().st_size // RECORD_BYTES


def read_run(path: Path) -> StoredRun:
    """Open a run that `write_run` wrote."""
    length, rest = divmod(path.stat().st_size, RECORD_BYTES)
    if rest:
        raise _cut_short(path)
    return StoredRun(_OpenFile(path.open("rb"), path), length, 0, length)


def store_run(folder: Path, pieces: Iterable[Run]) -> StoredRun:
    """Write sorted pieces to an unnamed file, which vanishes with its run, however the process ends."""
    file = tempfile.TemporaryFile(dir=folder, prefix=".spill")  # noqa: SIM115
    kept = _OpenFile(file, folder)
    length = sum(file.write(part) for part in _parts(pieces, folder)) // RECORD_BYTES
    file.flush()
    return StoredRun(kept, length, 0, length)


def _parts(pieces: Iterable[Run], folder: Path) -> Iterator[bytes | memoryview]:
    """All records, then all counts, which wait in an unnamed file."""
    with tempfile.TemporaryFile(dir=folder, prefix=".counts") as counts:
        for piece in pieces:
            counts.write(piece.counts.data)
            yield piece.records.data
        counts.seek(0)
        while chunk := counts.read(_COPY_BYTES):
            yield chunk


def _cut_short(name: object) -> UserError:
    return UserError(f"the counts in {name} are cut short; delete that file and count again")

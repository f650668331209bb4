"""A sorted run in a file: all records, all counts, and where its ranges begin. Read in parts, and never mapped.

What was read of a mapped file would count as memory of this process. Nothing is read but what was asked for: on a
network file system a buffer may be a megabyte.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ngram_builders.errors import UserError
from ngram_builders.ngrams import Run
from ngram_builders.scratch import replace_file

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
        """Read this many numbers; UserError if the file ends before."""
        values = np.empty(length, dtype=dtype)
        rest = values.view(np.uint8).data
        self.file.seek(offset)
        while len(rest):
            if not (read := self.file.readinto(rest)):  # type: ignore[attr-defined]
                raise _cut_short(self.name)
            rest = rest[read:]
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

    def record(self, place: int) -> int:
        """Return one record."""
        return int(self.file.read(np.uint64, 8 * (self.start + place), 1)[0])

    def find(self, record: int) -> int:
        """Return the place of the first record that is not below this one."""
        return bisect_left(range(len(self)), record, key=self.record)

    def load(self, start: int, end: int) -> Run:
        """Return a part of it in memory."""
        first = self.start + start
        length = end - start
        counts = 8 * self.total + 4 * first
        return Run(self.file.read(np.uint64, 8 * first, length), self.file.read(np.int32, counts, length))


def write_run(path: Path, pieces: Iterable[Run], starts: Sequence[int] = (0,)) -> int:
    """Write sorted pieces to one file, one piece in memory at a time -> n-grams.

    starts: the records at which ranges begin, to be found without a search; no record is below the first.
    """
    places = np.zeros(len(starts) + 1, dtype=np.int64)  # how many records there are before each start and in all
    records = np.array(starts, dtype=np.uint64)

    def counted() -> Iterator[Run]:
        for piece in pieces:
            places[:-1] += np.searchsorted(piece.records, records)
            places[-1] += len(piece)
            yield piece

    replace_file(path, chain(_parts(counted(), path.parent), (one.tobytes() for one in [places])))
    return int(places[-1])


def read_ranges(path: Path) -> list[StoredRun]:
    """Open the ranges of a run that `write_run` wrote, one file together."""
    file = _OpenFile(path.open("rb", buffering=0), path)
    size = file.file.seek(0, os.SEEK_END)
    total = int(file.read(np.int64, size - 8, 1)[0]) if size >= 16 else -1
    ranges, rest = divmod(size - RECORD_BYTES * total, 8)
    if not 0 <= total <= size or ranges < 2 or rest:
        raise _cut_short(path)
    places = file.read(np.int64, RECORD_BYTES * total, ranges).tolist()
    if places != sorted(places) or places[0]:
        raise _cut_short(path)
    return [StoredRun(file, total, start, end) for start, end in pairwise(places)]


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
    return UserError(
        f"the counts in {name} are damaged; if that is in a folder *.counting, delete it and run the command again"
    )

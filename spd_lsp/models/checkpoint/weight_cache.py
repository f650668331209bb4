"""Converted weights in the user's cache: a file for each model, written once and mapped from then on.

    tensors, each at a multiple of 64 bytes | the record as JSON | its length, a checksum of all before, a mark

A file is written under another name and renamed when it is whole; a process that is killed leaves a file that the
next one deletes. The files that were used last are kept. Knows neither torch nor what the tensors mean.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import platformdirs

from ngram_builders.registry.locks import is_running
from ngram_builders.scratch import read_writer, scratch_path
from ngram_builders.table.mapping import map_file
from spd_lsp.models.checkpoint.weight_files import weight_files

_MARK = b"spd-lsp weights 3 int8\n"  # another form of the file, or of the weights, has another mark
_FOOTER = struct.Struct(f"<QI{len(_MARK)}s")
_ALIGNMENT = 64
_BLOCK = 4 << 20
_SUFFIX, _REFUSAL_SUFFIX = ".weights", ".refused"
_MAX_BYTES = 24 << 30  # of all files together
_SPARE_BYTES = 1 << 30  # left free on the disk
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # of each file of a model
_ABANDONED_SECONDS = 3600.0

Place = tuple[str, list[int], int]  # of a tensor: its dtype, its shape, its first byte


class CannotCache(Exception):
    """Why a file cannot be written."""


class Output(Protocol):
    """An open file, or memory that is written like one."""

    def write(self, data: Any, /) -> int:
        """Add bytes."""

    def tell(self) -> int:
        """How many bytes were written."""


class TensorWriter:
    """Writes tensors one after the other, then the record that says what they are."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.checksum = 0

    def write(self, *parts: np.ndarray[Any, Any]) -> Place:
        """Add a tensor that consists of these, one below the other."""
        return self.write_rows(parts, sum(len(part) for part in parts))

    def write_rows(self, parts: Iterable[np.ndarray[Any, Any]], rows: int) -> Place:
        """The same for parts that are made only now: of each, no more than one is in memory."""
        self._add(bytes(-self.out.tell() % _ALIGNMENT))
        start, form = self.out.tell(), ("|u1", [0])
        for part in parts:
            form = (part.dtype.str, [rows, *part.shape[1:]])
            self._add(np.ascontiguousarray(part).data.cast("B") if part.size else b"")
        return (*form, start)

    def finish(self, record: dict[str, Any]) -> None:
        """Add the record."""
        described = json.dumps(record).encode()
        self._add(described)
        self._add(_FOOTER.pack(len(described), self.checksum, _MARK))

    def _add(self, data: Any) -> None:
        self.checksum = zlib.crc32(data, self.checksum)
        try:
            self.out.write(data)
        except OSError as error:
            raise CannotCache(error.strerror) from error


class StoredTensors:
    """The tensors and the record in a file or in memory; ValueError if they are not whole."""

    def __init__(self, data: Any, size: int) -> None:
        end = size - _FOOTER.size
        if end < 0:
            raise ValueError("it is cut off")
        length, self.checksum, mark = _FOOTER.unpack(data[end:size])
        if mark != _MARK or length > end:
            raise ValueError("it is no file of weights of this version")
        self.data, self.end = data, end
        self.record: dict[str, Any] = json.loads(bytes(data[end - length : end]))

    def array(self, place: Any) -> np.ndarray[Any, Any]:
        """A tensor, in place; it cannot be written to."""
        dtype, shape, start = place
        array: np.ndarray[Any, Any] = np.frombuffer(self.data, dtype, math.prod(shape), start).reshape(shape)
        array.flags.writeable = False
        return array


def open_cached(path: Path, note: Callable[[float], None]) -> StoredTensors:
    """Map a file after reading it once, which tells whether it is whole; `note` is given the share that was read.

    OSError or ValueError for a missing or damaged one.
    """
    data = map_file(path)
    tensors = StoredTensors(data, len(data))
    if _checksum(path, tensors.end, note) != tensors.checksum:
        raise ValueError("its checksum differs")
    with suppress(OSError):
        os.utime(path)  # used now
    return tensors


def _checksum(path: Path, end: int | None = None, note: Callable[[float], None] = lambda share: None) -> int:
    """The checksum of a file. Read through a buffer: mapped pages would count as this process's memory."""
    block, checksum, done = bytearray(_BLOCK), 0, 0
    view = memoryview(block)
    end = path.stat().st_size if end is None else end
    with path.open("rb", buffering=0) as file:
        while done < end:
            count = file.readinto(view[: end - done])
            if not count:
                raise ValueError("it is cut off")
            checksum = zlib.crc32(view[:count], checksum)
            done += count
            note(done / end)
    return checksum


@contextmanager
def writing(path: Path, size: int) -> Iterator[Any]:
    """An open file that gets its name when all was written; `CannotCache` if about so many bytes do not fit."""
    unfinished = scratch_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _delete_abandoned(path.parent)
        if (free := shutil.disk_usage(path.parent).free) < size + _SPARE_BYTES:
            raise CannotCache(f"the disk has {free / 1e9:.1f} GB left, and {size / 1e9:.1f} GB are needed")
        file = unfinished.open("xb")
    except OSError as error:
        raise CannotCache(error.strerror) from error
    try:
        yield file
        _rename(file, unfinished, path)
    finally:
        with suppress(OSError):
            file.close()
        unfinished.unlink(missing_ok=True)
    prune(_MAX_BYTES, keep=path)


def _rename(file: IO[bytes], unfinished: Path, path: Path) -> None:
    """Give a written file its name; `CannotCache` if its end does not fit, or Windows has the old one mapped."""
    try:
        file.close()
        unfinished.replace(path)
    except OSError as error:
        raise CannotCache(error.strerror) from error


def cache_path(folder: Path) -> Path:
    """Where the converted weights of a model's folder are kept; OSError if its files cannot be read.

    The name is a digest of config.json and, for each file of weights, its size, its header and samples of its
    content. The record has the rest: see `is_made_of`.
    """
    digest = hashlib.sha256(_MARK + (folder / "config.json").read_bytes())
    for path in weight_files(folder):
        size = path.stat().st_size
        digest.update(f"\0{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_BLOCK))
            for number in range(_SAMPLES):
                file.seek(size * number // _SAMPLES)
                digest.update(file.read(_SAMPLE_BYTES))
    return cache_folder() / (digest.hexdigest()[:32] + _SUFFIX)


def note_refusal(path: Path, reason: str) -> None:
    """Remember that the weights which would be kept here are not used, and why: they need not be made again."""
    with suppress(OSError):  # then they are made again
        path.with_suffix(_REFUSAL_SUFFIX).write_text(reason, encoding="utf-8")


def read_refusal(path: Path) -> str:
    """Why weights that would be kept here are not used, or an empty string."""
    with suppress(OSError, UnicodeDecodeError):
        return path.with_suffix(_REFUSAL_SUFFIX).read_text(encoding="utf-8")
    return ""


def describe_files(folder: Path) -> list[list[int]]:
    """The time and the checksum of each file of weights, for the record of what is made of them."""
    return [[path.stat().st_mtime_ns, _checksum(path)] for path in weight_files(folder)]


def is_made_of(folder: Path, described: list[list[int]]) -> bool:
    """Whether a folder's files are those that were described. Only files that were touched since are read."""
    files = weight_files(folder)
    return len(files) == len(described) and all(
        path.stat().st_mtime_ns == time or _checksum(path) == checksum
        for path, (time, checksum) in zip(files, described, strict=True)
    )


def cache_folder() -> Path:
    """Where all of them are."""
    return platformdirs.user_cache_path("spd-lsp", appauthor=False) / "weights"


def cached_files() -> list[Path]:
    """All of them, the one that was used last first."""
    with suppress(OSError):
        return sorted(cache_folder().glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return []


def prune(most: int, keep: Path | None = None) -> int:
    """Delete what was not used for longest until at most so many bytes are left; how many were freed."""
    kept, freed = 0, 0
    for path in cached_files():
        with suppress(OSError):  # Windows keeps what is mapped
            size = path.stat().st_size
            kept += size
            if kept > most and path != keep:
                path.unlink()
                kept, freed = kept - size, freed + size
    return freed


def _delete_abandoned(folder: Path) -> None:
    """Delete what processes that were killed have left."""
    for path in folder.iterdir():
        writer = read_writer(path.name)
        with suppress(OSError):
            old = time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
            if writer is not None and (old or not is_running(writer)):
                path.unlink()

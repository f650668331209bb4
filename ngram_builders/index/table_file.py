"""The table file: texts and their suffix array, written at once, checked when opened. Knows no registry.

Little-endian: 7 bytes magic, 1 byte version, the header's length and crc32 (4 bytes each), a msgpack header, and
sections on 64-byte boundaries: the arrays of a `SuffixArray`. A small table is read, a large one mapped. A table
is replaced by renaming and never changed in place, so whoever has the old one mapped keeps it.
"""

from __future__ import annotations

import mmap
import stat
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.errors import UserError
from ngram_builders.index.suffix_array import SuffixArray
from ngram_builders.scratch import replace_file

MAGIC = b"SPDNGT\0"
_VERSION = 5
_PREFIX = struct.Struct("<7sBII")
_REBUILD = "run: spd-lsp ngrams rebuild"
_MAX_TIME = 253402300800.0  # the year 10000, which no date can be formatted of
_MAX_TEXT = 200  # characters of what an exported table says of itself
_ALIGNMENT = 64
_READ_BYTES = 1 << 25  # 5 million tokens are read: cutting a mapped file short ends the process that reads it
_NUMBERS = ("<u2", "<u4")
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "text": _NUMBERS,
    "places": ("<u4",),
    "ids": ("<u4",),
    "firsts": ("<u4",),
    "breaks": ("<u4",),
    "wide": ("<u8",),
    "wide_ends": ("<u4",),
    "wide_numbers": _NUMBERS,
    "wide_counts": ("<u4",),
}
assert list(_SECTIONS) == [one.name for one in fields(SuffixArray)]


class TableError(UserError):
    """A table file that cannot be used."""

    def __init__(self, path: Path, cause: str, remedy: str = _REBUILD) -> None:
        super().__init__(f"cannot use n-gram table {path}: {cause}; {remedy}")
        self.path = path
        self.cause = cause


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSummary:
    """The facts in a table's header."""

    fingerprint: str  # of the tokenizer
    vocab_size: int
    tokens: int
    files: int
    sources: Mapping[str, int]  # language -> files
    origin: Mapping[str, Any] = field(default_factory=dict)  # how an exported one was made, as it says itself
    size: int = 0  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """An open table. Immutable, shared between threads without locks."""

    path: Path
    summary: TableSummary
    array: SuffixArray
    crcs: Mapping[str, int]  # the crc32 that each section should have

    @classmethod
    def open(cls, path: Path, fingerprint: str | None = None) -> Table:
        """Read or map a table; TableError if it is damaged or its tokenizer another.

        Its numbers lie within its arrays, so no query fails. `verify` compares checksums, too.
        """
        summary, array, crcs = _read(path)
        if section := _find_invalid(array, summary):
            raise TableError(path, f"invalid data in section {section}")
        if fingerprint not in (None, summary.fingerprint):
            raise TableError(
                path, f"it was built with tokenizer {summary.fingerprint}, the model uses {fingerprint}"
            )
        return cls(path, summary, array, crcs)

    def verify(self) -> None:
        """Compare the checksums of all sections; TableError if one differs."""
        for name, crc in self.crcs.items():
            if zlib.crc32(_bytes(getattr(self.array, name))) != crc:
                raise TableError(self.path, f"damaged data in section {name}")


def write_table(path: Path, array: SuffixArray, summary: TableSummary) -> None:
    """Write a table, completely or not at all; the same array and facts give the same bytes."""
    sections: dict[str, list[Any]] = {}
    offset = 0
    for name in _SECTIONS:
        section: Ints = getattr(array, name)
        sections[name] = [offset, section.nbytes, section.dtype.str, zlib.crc32(_bytes(section))]
        offset = _align(offset + section.nbytes)
    facts = asdict(summary)
    del facts["size"]
    header: bytes = msgpack.packb({**facts, "sections": sections})
    prefix = _PREFIX.pack(MAGIC, _VERSION, len(header), zlib.crc32(header)) + header
    parts: list[bytes | memoryview] = [prefix.ljust(_align(len(prefix)), b"\0")]
    for name in _SECTIONS:
        data = _bytes(getattr(array, name))
        parts += [data, b"\0" * (_align(len(data)) - len(data))]
    replace_file(path, parts)


def read_summary(path: Path) -> TableSummary:
    """Return the facts in a table's header; TableError if that is damaged. Reads none of the sections."""
    return _read(path)[0]


def _read(path: Path) -> tuple[TableSummary, SuffixArray, dict[str, int]]:
    """A table as its header describes it, and the checksum that each section should have."""
    data = _load(path)
    header, start = _read_header(path, data)
    try:
        summary = _read_summary(header, len(data))
        sections = {name: header["sections"][name] for name in _SECTIONS}
        end = start + max(_align(offset + size) for offset, size, _, _ in sections.values())
        if len(data) != end:
            raise TableError(path, f"it has {len(data):,} bytes instead of {end:,}")
        arrays = {}
        for name, (offset, size, kind, _) in sections.items():
            dtype = np.dtype(_SECTIONS[name][_SECTIONS[name].index(kind)])  # ValueError for any other
            arrays[name] = np.frombuffer(data, dtype, size // dtype.itemsize, start + offset)
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise TableError(path, "its header is invalid") from error
    return summary, SuffixArray(**arrays), {name: crc for name, (_, _, _, crc) in sections.items()}


def _load(path: Path) -> mmap.mmap | bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise TableError(path, "it is not a regular file")  # opening a pipe would wait for a writer
        if status.st_size < _PREFIX.size:
            raise TableError(path, "the file is too short")
        with path.open("rb") as file:
            if status.st_size <= _READ_BYTES:
                return file.read()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: the file was emptied in the meantime
        reason = error.strerror if isinstance(error, OSError) else None
        raise TableError(path, (reason or str(error)).lower()) from error


def _read_header(path: Path, data: mmap.mmap | bytes) -> tuple[dict[str, Any], int]:
    """The header's fields, and where the sections begin."""
    magic, version, length, crc = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise TableError(path, "it is not an n-gram table")
    if version > _VERSION:
        raise TableError(path, f"its format {version} is newer than {_VERSION}", f"update spd-lsp or {_REBUILD}")
    if version < _VERSION:
        raise TableError(path, f"its format {version} is older than {_VERSION}")
    raw = data[_PREFIX.size : _PREFIX.size + length]
    if zlib.crc32(raw) != crc:
        raise TableError(path, "its header is damaged")
    try:
        return dict(msgpack.unpackb(raw)), _align(_PREFIX.size + length)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise TableError(path, "its header is unreadable") from error


def _read_summary(header: Mapping[str, Any], size: int) -> TableSummary:
    """The header's facts, which nothing verifies. ValueError for a field that is no number or time."""
    origin: dict[str, Any] = {}
    if facts := header["origin"]:
        origin = {"model": str(facts["model"]), "built": float(facts["built"]), "sources": str(facts["sources"])}
        if not 0 <= origin["built"] < _MAX_TIME:
            raise ValueError(facts)
    return TableSummary(
        fingerprint=str(header["fingerprint"]),
        sources={str(language): int(files) for language, files in header["sources"].items()},
        origin={name: fact[:_MAX_TEXT] if isinstance(fact, str) else fact for name, fact in origin.items()},
        size=size,
        **{name: int(header[name]) for name in ("vocab_size", "tokens", "files")},
    )


def _find_invalid(array: SuffixArray, summary: TableSummary) -> str | None:
    """The first section whose values lead beyond an array, or None."""
    text = array.text
    breaks = array.breaks
    if len(breaks) != summary.files + 1 or not _ascend(breaks) or (breaks[0], breaks[-1]) != (0, len(text) - 1):
        return "breaks"
    numbers = len(array.ids)
    if not numbers or text.max() >= numbers or text[breaks].any() or np.count_nonzero(text) != array.tokens:
        return "text"
    if array.tokens != summary.tokens:
        return "text"
    if not _ascend(array.ids[1:]) or array.ids[-1] >= summary.vocab_size:
        return "ids"
    firsts = array.firsts
    if len(firsts) != numbers + 1 or (firsts[1:] < firsts[:-1]).any() or firsts[-1] != len(array.places):
        return "firsts"
    if len(array.places) and not 0 < array.places.min() <= array.places.max() < len(text) - 1:
        return "places"
    if not _ascend(array.wide) or len(array.wide_ends) != len(array.wide):
        return "wide"
    ends = array.wide_ends
    entries = int(ends[-1]) if len(ends) else 0
    if (
        not _ascend(ends)
        or (len(ends) and not ends[0])
        or not entries == len(array.wide_numbers) == len(array.wide_counts)
    ):
        return "wide_ends"
    return "wide_numbers" if entries and array.wide_numbers.max() >= numbers else None


def _ascend(values: Ints) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _align(offset: int) -> int:
    """The next section boundary. Example: 1 -> 64, 64 -> 64"""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _bytes(section: Ints) -> memoryview:
    return np.ascontiguousarray(section).view(np.uint8).data

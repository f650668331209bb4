"""The table file: its header, its sections, and how one is opened, checked and replaced. Knows no counting.

Little-endian: 7 bytes magic, 1 byte version, header length and its crc32 (4 bytes each), a msgpack header, then
raw sections on 64-byte boundaries. Rows are contexts sorted by order and hash; a row's entries are the tokens that
followed it. A context is found by its order's directory (the hash's upper bits -> a few rows) and its fingerprint
(the lower 32 bits); together they are the whole hash, so that a table can be counted on with.

Dimensions: G n-grams, R contexts, O orders.
"""

from __future__ import annotations

import mmap
import os
import secrets
import stat
import struct
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.errors import UserError
from ngram_builders.ngrams import HIGHEST_ORDER, hash_bits, token_bits
from ngram_builders.table.mapping import map_file

MAGIC = b"SPDNGT\0"
VERSION = 2
PREFIX = struct.Struct("<7sBII")
_ALIGNMENT = 64
OVERFLOW = 255  # this count and all above stand in the overflow sections
WIDE_ROW = 32  # rows with so many entries have their total written down
_BUCKET = 4  # contexts to a directory entry, about
FINGERPRINT_BITS = 32
_LONGEST_HEADER = 1 << 16  # bytes; a build's takes about one thousand
REBUILD = "run: spd-lsp ngrams rebuild"

# Row: the highest order whose context was seen; column: the order that its weight is for; both from order 2 on.
OrderWeights = tuple[tuple[float, ...], ...]

SECTION_DTYPES: Mapping[str, tuple[str, ...]] = {
    "directory": ("<u4",),
    "fingerprints": ("<u4",),
    "pointers": ("<u4",),
    "tokens": ("<u2", "<u4"),
    "counts": ("|u1",),
    "overflow_places": ("<u4",),
    "overflow_counts": ("<u4",),
    "wide_rows": ("<u4",),
    "wide_totals": ("<i8",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSummary:
    """What a table's header says of it."""

    fingerprint: str  # of the tokenizer
    vocab_size: int
    orders: tuple[int, ...]
    min_count: tuple[int, ...]  # one per order
    tokens: int
    files: int
    contexts: int
    entries: int  # what contexts hold: n-grams, and one entry more where some were pruned
    ngrams: int
    sources: dict[str, int]  # language -> files
    size: int  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The sections as arrays. The counts of several sets of columns add up: a file, and what changed since."""

    directory: Ints  # per order 2**bits + 1 rows: those of bucket b are directory[b] ... directory[b + 1]
    fingerprints: Ints  # [R]
    pointers: Ints  # [R + 1] row r's entries are tokens[pointers[r]:pointers[r + 1]]
    tokens: Ints  # [G] sorted within a row; u16 or u32
    counts: Ints  # [G] u8 with overflow, or i32 and signed
    overflow_places: Ints  # sorted places in counts that hold MANY
    overflow_counts: Ints  # their counts
    wide_rows: Ints  # sorted rows with WIDE entries or more
    wide_totals: Ints  # their totals
    orders: Mapping[int, tuple[int, int]]  # order -> where its directory starts, and its bits
    vocab_size: int


def directory_bits(contexts: int, vocab_size: int) -> int:
    """How many upper bits of the hash one order's directory tells apart."""
    hashed = hash_bits(vocab_size)
    wanted = max(0, (contexts // _BUCKET).bit_length())
    return min(hashed, max(hashed - FINGERPRINT_BITS, wanted))


def token_dtype(vocab_size: int) -> str:
    """The smallest type that holds every token."""
    return "<u2" if token_bits(vocab_size) == 16 else "<u4"


def align(offset: int) -> int:
    """The next section boundary. Example: 1 -> 64, 64 -> 64"""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def as_bytes(column: Ints) -> memoryview:
    """A column's memory."""
    return np.ascontiguousarray(column).view(np.uint8).data


def pack_header(fields: Mapping[str, Any], sections: Mapping[str, tuple[int, str, int]]) -> tuple[bytes, int]:
    """The file's first bytes, up to the first section, and its size. sections: name -> bytes, type, crc32."""
    places: dict[str, list[Any]] = {}
    offset = 0
    for name, (size, dtype, crc) in sections.items():
        places[name] = [offset, size, dtype, crc]
        offset = align(offset + size)
    header: bytes = msgpack.packb({**fields, "sections": places})
    start = align(PREFIX.size + len(header))
    return (PREFIX.pack(MAGIC, VERSION, len(header), zlib.crc32(header)) + header).ljust(
        start, b"\0"
    ), start + offset


def replace_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Put a complete file at path or leave what was there; who has the old one mapped keeps the old one."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free space there or choose another folder"
        ) from error
    finally:
        with suppress(OSError):
            scratch.unlink()
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system can."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def refusal(path: Path, found: str) -> UserError:
    """The error for a file that cannot serve."""
    return UserError(f"expected an n-gram table at {path}, found {found}; {REBUILD}")


def open_file(path: Path, whole: bool = False) -> tuple[TableSummary, Columns, dict[str, int]]:
    """Map a table: its summary, its columns, and what each section's crc32 should be. Reads the header only.

    With `whole` it is read into memory instead, all of it.
    """
    data = _take_file(path, whole)
    fields, start = read_header(path, data)
    try:
        summary = read_summary(fields, len(data))
        sections = {name: _read_section(name, *fields["sections"][name]) for name in SECTION_DTYPES}
        orders = {int(order): (int(base), int(bits)) for order, base, bits in fields["directories"]}
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise refusal(path, "a header that makes no sense") from error
    end = start + max(align(offset + size) for offset, size, _, _ in sections.values())
    if len(data) != end:
        raise refusal(path, f"{len(data):,} bytes instead of {end:,}")
    arrays = {
        name: np.frombuffer(data, dtype, size // dtype.itemsize, start + offset)
        for name, (offset, size, dtype, _) in sections.items()
    }
    columns = Columns(**arrays, orders=orders, vocab_size=summary.vocab_size)
    if not _sections_agree(summary, columns):
        raise refusal(path, "sections that do not fit each other")
    return summary, columns, {name: crc for name, (_, _, _, crc) in sections.items()}


def _take_file(path: Path, whole: bool) -> mmap.mmap | bytes:
    """The whole file, mapped or read."""
    try:
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise refusal(path, "no regular file")  # opening a pipe would wait for who writes
        if stat.S_ISREG(status.st_mode) and status.st_size < PREFIX.size:
            raise refusal(path, "a file too short for one")
        return path.read_bytes() if whole else map_file(path)
    except (OSError, ValueError) as error:  # the second where a file was emptied meanwhile
        found = error.strerror if isinstance(error, OSError) else None
        raise refusal(path, (found or str(error)).lower()) from error


def read_header(path: Path, data: mmap.mmap | bytes) -> tuple[dict[str, Any], int]:
    """The header's fields and where the sections begin."""
    if len(data) < PREFIX.size:
        raise refusal(path, "a file too short for one")
    magic, version, length, crc = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise refusal(path, "a file of another kind")
    if version > VERSION:
        raise UserError(
            f"n-gram table {path} has format {version}, this spd-lsp reads {VERSION}; update spd-lsp or {REBUILD}"
        )
    if version < VERSION:
        raise refusal(path, f"the old format {version}, this spd-lsp reads {VERSION}")
    if length > _LONGEST_HEADER:
        raise refusal(path, "a header longer than any")
    raw = data[PREFIX.size : PREFIX.size + length]
    if len(raw) != length:
        raise refusal(path, "a header cut short")
    if zlib.crc32(raw) != crc:
        raise refusal(path, "a damaged header")
    try:
        return dict(msgpack.unpackb(raw)), align(PREFIX.size + length)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise refusal(path, "an unreadable header") from error


def read_summary(fields: Mapping[str, Any], size: int) -> TableSummary:
    """The header's fields as a summary; ValueError if a table cannot have them."""
    orders = tuple(int(order) for order in fields["orders"])
    vocab_size = int(fields["vocab_size"])
    if not orders or orders != tuple(sorted(set(orders))) or orders[0] < 2 or orders[-1] > HIGHEST_ORDER:
        raise ValueError(orders)
    if not 0 < vocab_size < 2**31:
        raise ValueError(vocab_size)
    return TableSummary(
        fingerprint=str(fields["fingerprint"]),
        vocab_size=vocab_size,
        orders=orders,
        min_count=tuple(int(least) for least in fields["min_count"]),
        tokens=int(fields["tokens"]),
        files=int(fields["files"]),
        contexts=int(fields["contexts"]),
        entries=int(fields["entries"]),
        ngrams=int(fields["ngrams"]),
        sources={str(language): int(files) for language, files in fields["sources"].items()},
        size=size,
    )


def _read_section(name: str, offset: int, size: int, kind: str, crc: int) -> tuple[int, int, np.dtype[Any], int]:
    """One section's offset, bytes, type and crc; ValueError if it cannot be one."""
    if kind not in SECTION_DTYPES[name]:
        raise ValueError(kind)
    dtype, places = np.dtype(kind), (int(offset), int(size))
    if places != (offset, size) or min(places) < 0 or offset % _ALIGNMENT or size % dtype.itemsize:
        raise ValueError(name)
    return *places, dtype, int(crc)


def _sections_agree(summary: TableSummary, columns: Columns) -> bool:
    """Whether the sections' lengths agree; reads one number of the data."""
    contexts, entries, hashed = summary.contexts, summary.entries, hash_bits(summary.vocab_size)
    directories = [(base, bits) for base, bits in columns.orders.values() if base >= 0]
    return (
        tuple(columns.orders) == summary.orders
        and all(hashed - FINGERPRINT_BITS <= bits <= min(hashed, 40) for _, bits in directories)
        and all(base + 2**bits + 1 <= len(columns.directory) for base, bits in directories)
        and len(directories) == len(summary.orders)
        and columns.tokens.dtype.str == token_dtype(summary.vocab_size)
        and len(columns.fingerprints) == contexts
        and len(columns.pointers) == contexts + 1
        and len(columns.tokens) == len(columns.counts) == entries
        and len(columns.overflow_places) == len(columns.overflow_counts)
        and len(columns.wide_rows) == len(columns.wide_totals)
        and int(columns.pointers[-1]) == entries
    )

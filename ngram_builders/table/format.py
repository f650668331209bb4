"""The table file: its header, its sections, and how it is opened, checked and replaced. Knows no counting.

Little-endian: 7 bytes magic, 1 byte version, the header's length and crc32 (4 bytes each), a msgpack header, and
sections on 64-byte boundaries. Rows are contexts sorted by order and hash; a row's entries are the tokens that
followed it. A context is found by its order's directory, the upper bits of its hash, and by its row's head, which
has the lower 28: the whole hash, so the counts can be read back and updated. The head's other four bits are the
row's shape: how many entries it has, and whether their counts are stored; most are 1, and are not. Where a row's
entries begin follows from the shapes of those before it in its block of rows.
A table may also hold the texts that were counted, with their suffix array. A segment holds what changed in the
counts since another table was written: its counts have signs, and it has no overflow.

Dimensions: G entries, N counts stored, R rows, W wide rows, O orders.
"""

from __future__ import annotations

import mmap
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from ngram_builders.arrays import I64, Bools, Ints
from ngram_builders.errors import UserError
from ngram_builders.ngrams import HIGHEST_ORDER, Run, hash_bits, token_bits
from ngram_builders.table.suffix_array import SUFFIX_BYTES, SuffixArray, text_dtype

MAGIC = b"SPDNGT\0"
VERSION = 4
FILE_PREFIX = struct.Struct("<7sBII")
_REBUILD = "run: spd-lsp ngrams rebuild"
# rows.h has these as well; a test compares them.
COUNT_OVERFLOW = 255  # this count and all above are in the overflow sections
SHAPE_BITS = 4
# Shapes 0 ... 4: 1 ... 5 entries, each counted once; shapes 5 ... 14: 1 ... 10 entries with stored counts.
ONES = 5
WIDE = 2**SHAPE_BITS - 1  # this shape's widths and totals are stored apart
WIDE_ROW = WIDE - ONES + 1  # a row with at least this many entries is wide
BLOCK_ROWS = 32
POINTERS = 3  # of a block
FINGERPRINT_BITS = 32 - SHAPE_BITS
_CONTEXTS_PER_BUCKET = 16  # about
_MAX_DIRECTORY_BITS = 40
_MAX_HEADER_BYTES = 1 << 16  # a build writes about one thousand
_MAX_NUMBER = 1 << 53  # which every program can read
_NAME = re.compile(r"[ -~]{1,64}")  # of a tokenizer or a language
_ALIGNMENT = 64

SECTION_DTYPES: Mapping[str, tuple[str, ...]] = {
    "directory": ("<u4",),
    "heads": ("<u4",),
    "pointers": ("<u4",),
    "tokens": ("<u2", "<u4"),
    "counts": ("|u1", "<i4"),  # the second of a segment, whose counts may be negative
    "overflow_places": ("<u4",),
    "overflow_counts": ("<u4",),
    "wide_widths": ("<u4",),
    "wide_totals": ("<i8",),
}
TEXT_SECTIONS: Mapping[str, tuple[str, ...]] = {  # all of them or none
    "text": (">u2", ">u4"),
    "suffixes": ("|u1",),
    "documents": ("<u4",),
}


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
    orders: tuple[int, ...]
    min_count: tuple[int, ...]  # one per order
    tokens: int
    files: int
    contexts: int
    entries: int  # n-grams, and one more for each context of which some were pruned
    ngrams: int
    sources: dict[str, int]  # language -> files
    size: int  # bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The sections as arrays. Counts of several Columns add up: a file, and what changed since it was built."""

    directory: Ints  # per order 2**bits + 1 rows: bucket b holds rows directory[b] ... directory[b + 1]
    heads: Ints  # [R] the lower bits of the context's hash << SHAPE_BITS | shape
    pointers: Ints  # of each block of rows, and the end: tokens, stored counts and wide rows before it
    tokens: Ints  # [G] sorted within a row; u16 or u32
    counts: Ints  # [N] of the rows that have them stored: u8 with overflow, or i32 and signed
    overflow_places: Ints  # sorted indices of the counts that are COUNT_OVERFLOW
    overflow_counts: Ints  # their values
    wide_widths: Ints  # [W] how many entries the rows have that have WIDE_ROW or more
    wide_totals: Ints  # [W] the sums of their counts
    orders: Mapping[int, tuple[int, int]]  # order -> where its directory starts, and its bits
    vocab_size: int

    @property
    def is_signed(self) -> bool:
        """Whether counts may be negative, as they are added to those of other columns."""
        return self.counts.dtype.itemsize > 1

    def order_directory(self, order: int) -> Ints:
        """One order's part of the directory: the rows between which each bucket lies."""
        base, bits = self.orders[order]
        return self.directory[base : base + 2**bits + 1]

    def hashes(self, order: int, start: int, end: int) -> tuple[I64, I64]:
        """The hashes of some rows of one order, and the buckets they are in."""
        directory = self.order_directory(order)
        rows = np.arange(start, end).astype(directory.dtype)  # searchsorted would copy a directory of another type
        buckets = np.searchsorted(directory, rows, side="right") - 1
        upper = buckets >> (self.orders[order][1] - (hash_bits(self.vocab_size) - FINGERPRINT_BITS))
        return (upper << FINGERPRINT_BITS) | (self.heads[start:end] >> SHAPE_BITS).astype(np.int64), buckets

    def layout(self, start: int, end: int) -> tuple[I64, Bools]:
        """The widths of some rows, and whether their counts are stored."""
        first = start - start % BLOCK_ROWS
        shapes = (self.heads[first:end] & WIDE).astype(np.int64)
        widths = shapes + np.where(shapes < ONES, 1, 1 - ONES)
        wide = np.flatnonzero(shapes == WIDE)
        before = int(self.pointers[POINTERS * (first // BLOCK_ROWS) + 2])
        widths[wide] = self.wide_widths[before : before + len(wide)]
        return widths[start - first :], shapes[start - first :] >= ONES

    def read_rows(self, start: int, end: int) -> tuple[I64, Ints, I64]:
        """The widths of some rows, and their entries: tokens and counts."""
        first = start - start % BLOCK_ROWS
        widths, stored = self.layout(first, end)
        before = slice(0, start - first)
        block = POINTERS * (first // BLOCK_ROWS)
        entry = int(self.pointers[block]) + int(widths[before].sum())
        place = int(self.pointers[block + 1]) + int((widths * stored)[before].sum())
        widths = widths[start - first :]
        stored = stored[start - first :]
        if entry + int(widths.sum()) > len(self.tokens):
            raise ValueError("rows with more entries than there are")
        counts = np.ones(int(widths.sum()), dtype=np.int64)
        kept = np.repeat(stored, widths)
        counts[kept] = self._exact_counts(place, place + int(kept.sum()))
        return widths, self.tokens[entry : entry + len(counts)], counts

    def run(self, order: int, start: int, end: int) -> Run:
        """The counts of some rows of one order."""
        contexts = self.hashes(order, start, end)[0].astype(np.uint64)
        contexts |= np.uint64((order - 2) << hash_bits(self.vocab_size))
        widths, tokens, counts = self.read_rows(start, end)
        records = np.repeat(contexts << np.uint64(token_bits(self.vocab_size)), widths)
        records |= tokens.astype(np.uint64)
        return Run(records, counts.astype(np.int32))

    def _exact_counts(self, start: int, end: int) -> I64:
        """Some stored counts, large ones from the overflow."""
        counts = self.counts[start:end].astype(np.int64)
        if self.is_signed:
            return counts
        large = np.flatnonzero(counts == COUNT_OVERFLOW)
        places = (large + start).astype(self.overflow_places.dtype)
        counts[large] = self.overflow_counts[np.searchsorted(self.overflow_places, places)]
        return counts


def directory_bits(contexts: int, vocab_size: int) -> int:
    """How many upper bits of the hash an order's directory resolves."""
    hashed = hash_bits(vocab_size)
    wanted = (contexts // _CONTEXTS_PER_BUCKET).bit_length()
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


# --- writing --------------------------------------------------------------------------------------------------


def pack_header(fields: Mapping[str, Any], sections: Mapping[str, tuple[int, str, int]]) -> tuple[bytes, int]:
    """The file's bytes before the first section, and the file's size. sections: name -> bytes, type, crc32."""
    places: dict[str, list[Any]] = {}
    offset = 0
    for name, (size, dtype, crc) in sections.items():
        places[name] = [offset, size, dtype, crc]
        offset = align(offset + size)
    header: bytes = msgpack.packb({**fields, "sections": places})
    prefix = FILE_PREFIX.pack(MAGIC, VERSION, len(header), zlib.crc32(header))
    start = align(len(prefix) + len(header))
    return (prefix + header).ljust(start, b"\0"), start + offset


# --- reading --------------------------------------------------------------------------------------------------


def read_header(path: Path, data: mmap.mmap | bytes) -> tuple[dict[str, Any], int]:
    """The header's fields, and where the sections begin."""
    if len(data) < FILE_PREFIX.size:
        raise TableError(path, "the file is too short")
    magic, version, length, crc = FILE_PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise TableError(path, "it is not an n-gram table")
    if version > VERSION:
        raise TableError(path, f"its format {version} is newer than {VERSION}", f"update spd-lsp or {_REBUILD}")
    if version < VERSION:
        raise TableError(path, f"its format {version} is older than {VERSION}")
    if length > _MAX_HEADER_BYTES:
        raise TableError(path, "its header is too long")
    raw = data[FILE_PREFIX.size : FILE_PREFIX.size + length]
    if len(raw) != length:
        raise TableError(path, "its header is truncated")
    if zlib.crc32(raw) != crc:
        raise TableError(path, "its header is damaged")
    try:
        return dict(msgpack.unpackb(raw)), align(FILE_PREFIX.size + length)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise TableError(path, "its header is unreadable") from error


def read_summary(fields: Mapping[str, Any], size: int) -> TableSummary:
    """The header's fields as a summary; ValueError if they are impossible."""
    orders = tuple(_number(order) for order in fields["orders"])
    vocab_size = _number(fields["vocab_size"])
    min_count = tuple(map(_number, fields["min_count"]))
    if not orders or orders != tuple(sorted(set(orders))) or orders[0] < 2 or orders[-1] > HIGHEST_ORDER:
        raise ValueError(orders)
    if not 0 < vocab_size < 2**31 or len(min_count) != len(orders):
        raise ValueError(vocab_size, min_count)
    if not _NAME.fullmatch(fields["fingerprint"]) or not all(map(_NAME.fullmatch, fields["sources"])):
        raise ValueError("name")
    return TableSummary(
        fingerprint=fields["fingerprint"],
        vocab_size=vocab_size,
        orders=orders,
        min_count=min_count,
        sources={language: _number(files) for language, files in fields["sources"].items()},
        size=size,
        **{name: _number(fields[name]) for name in ("tokens", "files", "contexts", "entries", "ngrams")},
    )


def _number(value: object) -> int:
    """A number that a build may have written; ValueError for any other value."""
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:
        raise ValueError(value)
    return value


def read_section(
    kinds: tuple[str, ...], offset: int, size: int, kind: str, crc: int
) -> tuple[int, int, np.dtype[Any], int]:
    """One section's offset, bytes, type and crc; ValueError if they are impossible."""
    if kind not in kinds:
        raise ValueError(kind)
    dtype = np.dtype(kind)
    place = (int(offset), int(size))
    if place != (offset, size) or min(place) < 0 or offset % _ALIGNMENT or size % dtype.itemsize:
        raise ValueError(place)
    return *place, dtype, int(crc)


def fit(texts: SuffixArray | None, summary: TableSummary) -> bool:
    """Whether the sections of texts, if there are any, agree with the header."""
    return texts is None or (
        texts.text.dtype.str == text_dtype(summary.vocab_size)
        and len(texts.text) * SUFFIX_BYTES == len(texts.suffixes) == (summary.tokens + 1) * SUFFIX_BYTES
        and len(texts.documents) == summary.files
    )


def have_matching_lengths(summary: TableSummary, columns: Columns) -> bool:
    """Whether the sections' lengths agree with the header; reads only the last pointers."""
    contexts = summary.contexts
    entries = summary.entries
    hashed = hash_bits(summary.vocab_size)
    return (
        tuple(columns.orders) == summary.orders
        and all(
            base >= 0
            and hashed - FINGERPRINT_BITS <= bits <= min(hashed, _MAX_DIRECTORY_BITS)
            and base + 2**bits + 1 <= len(columns.directory)
            for base, bits in columns.orders.values()
        )
        and columns.tokens.dtype.str == token_dtype(summary.vocab_size)
        and len(columns.heads) == contexts
        and len(columns.pointers) == POINTERS * (-(-contexts // BLOCK_ROWS) + 1)
        and len(columns.tokens) == entries
        and len(columns.overflow_places) == len(columns.overflow_counts)
        and len(columns.wide_widths) == len(columns.wide_totals)
        and columns.pointers[-POINTERS:].tolist() == [entries, len(columns.counts), len(columns.wide_widths)]
    )

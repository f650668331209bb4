"""Counts -> one immutable file, and that file -> probabilities, memory-mapped. Knows ids, not text or registries.

Layout, little-endian: 7 bytes magic, 1 byte version, header length and its crc32 (4 bytes each), a msgpack
header, then raw sections on 64-byte boundaries. All orders share the sections: a context's key holds its order in
the top 3 bits and its hash below, so that one sorted array finds every context of every draft in a single search.

Dimensions: K drafts, N highest order, O orders, C candidates, S contexts found, G n-grams, R contexts.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from ngram_builders.counts import HIGHEST_ORDER, Counts, hash_contexts
from ngram_builders.errors import UserError

__all__ = ["Table", "TableSummary", "replace_file", "write"]

MAGIC = b"SPDNGT\0"
VERSION = 1
PREFIX = struct.Struct("<7sBII")
ALIGNMENT = 64
ORDER_SHIFT = 61
MANY = 255  # this count and all above stand in the overflow sections
REBUILD = "run: spd-lsp build-ngrams REPO"

Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

DTYPES: Mapping[str, tuple[str, ...]] = {
    "keys": ("<u8",),
    "pointers": ("<u4",),
    "totals": ("<u4",),
    "tokens": ("<u2", "<u4"),
    "counts": ("|u1",),
    "overflow_places": ("<u4",),
    "overflow_counts": ("<u4",),
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
    ngrams: int
    sources: dict[str, int]  # language -> files
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Columns:
    """The sections as arrays: context r's entries are tokens[pointers[r]:pointers[r + 1]], sorted."""

    keys: Ints  # [R] u64, sorted: order - 2 in the top 3 bits, the context's hash below
    pointers: Ints  # [R + 1]
    totals: Ints  # [R]
    tokens: Ints  # [G] u16 or u32
    counts: Ints  # [G] u8
    overflow_places: Ints  # sorted places in counts that hold MANY
    overflow_counts: Ints  # their counts


def pack(counts: Counts) -> Columns:
    """Join all orders into one set of columns with the smallest types that hold them."""
    parts = counts.by_order
    ngrams = [len(part.tokens) for part in parts]
    if sum(ngrams) >= 2**32:
        raise UserError(f"expected fewer than 2^32 n-grams, found {sum(ngrams):,}; build smaller domains")
    before = np.cumsum([0, *ngrams], dtype=np.int64)
    exact = np.concatenate([part.counts for part in parts])
    places = np.flatnonzero(exact >= MANY)
    token_type = "<u2" if counts.vocab_size <= 2**16 else "<u4"
    return Columns(
        keys=np.concatenate([part.keys | np.uint64((part.order - 2) << ORDER_SHIFT) for part in parts]),
        pointers=np.concatenate(
            [part.pointers[:-1] + offset for part, offset in zip(parts, before, strict=False)] + [before[-1:]]
        ).astype("<u4"),
        totals=np.concatenate([part.totals for part in parts]).astype("<u4"),
        tokens=np.concatenate([part.tokens for part in parts]).astype(token_type),
        counts=np.minimum(exact, MANY).astype("|u1"),
        overflow_places=places.astype("<u4"),
        overflow_counts=exact[places].astype("<u4"),
    )


def write(path: Path, counts: Counts, *, fingerprint: str, sources: Mapping[str, int]) -> TableSummary:
    """Write a table beside its place and rename it there. The same counts give the same bytes."""
    columns = pack(counts)
    sections: dict[str, list[Any]] = {}
    offset = 0
    for name in DTYPES:
        column = getattr(columns, name)
        sections[name] = [offset, column.nbytes, column.dtype.str, zlib.crc32(as_bytes(column))]
        offset = align(offset + column.nbytes)
    fields = {
        "fingerprint": fingerprint,
        "vocab_size": counts.vocab_size,
        "orders": [part.order for part in counts.by_order],
        "min_count": list(counts.min_count),
        "tokens": counts.tokens,
        "files": counts.documents,
        "contexts": len(columns.keys),
        "ngrams": len(columns.tokens),
        "sources": dict(sorted(sources.items())),
        "hash": "multilinear-fmix64",
        "sections": sections,
    }
    header: bytes = msgpack.packb(fields)
    start = align(PREFIX.size + len(header))
    replace_file(path, file_parts(header, start, columns))
    return read_summary(fields, start + offset)


def align(offset: int) -> int:
    """The next section boundary. Example: 1 -> 64, 64 -> 64"""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def as_bytes(column: Ints) -> memoryview:
    """A column's memory."""
    return column.view(np.uint8).data


def file_parts(header: bytes, start: int, columns: Columns) -> Iterable[bytes | memoryview]:
    """The file's bytes in order."""
    prefix = PREFIX.pack(MAGIC, VERSION, len(header), zlib.crc32(header))
    yield (prefix + header).ljust(start, b"\0")
    for name in DTYPES:
        data = as_bytes(getattr(columns, name))
        yield data
        yield b"\0" * (align(len(data)) - len(data))


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
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
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


class Table:
    """An open table. Immutable, shared between threads without locks."""

    def __init__(self, path: Path, summary: TableSummary, columns: Columns, crcs: Sequence[int]) -> None:
        self.path = path
        self.summary = summary
        self.orders = summary.orders  # those that lookup answers, ascending
        self.tokens = summary.tokens
        self.columns = columns
        self.crcs = crcs
        self.tags = np.array([order - 2 for order in summary.orders], dtype=np.uint64) << np.uint64(ORDER_SHIFT)

    @classmethod
    def open(cls, path: Path, fingerprint: str | None = None) -> Table:
        """Map a table, refusing what is damaged or of another tokenizer; verify checks the data itself."""
        data = map_file(path)
        fields, start = read_header(path, data)
        try:
            summary = read_summary(fields, len(data))
            sections = [read_section(name, *fields["sections"][name]) for name in DTYPES]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise refusal(path, "a header that makes no sense") from error
        end = start + max(align(offset + size) for offset, size, _, _ in sections)
        if len(data) != end:
            raise refusal(path, f"{len(data):,} bytes instead of {end:,}")
        columns = Columns(
            *(
                np.frombuffer(data, dtype, size // dtype.itemsize, start + offset)
                for offset, size, dtype, _ in sections
            )
        )
        if not fit(summary, columns):
            raise refusal(path, "sections that do not fit each other")
        if fingerprint is not None and summary.fingerprint != fingerprint:
            raise UserError(
                f"n-gram table {path} was built with tokenizer {summary.fingerprint}, "
                f"the model uses {fingerprint}; {REBUILD} --model MODEL"
            )
        return cls(path, summary, columns, [crc for _, _, _, crc in sections])

    def verify(self) -> None:
        """Read every byte and raise if one is not what was written."""
        for name, crc in zip(DTYPES, self.crcs, strict=True):
            if zlib.crc32(as_bytes(getattr(self.columns, name))) != crc:
                raise refusal(self.path, f"damaged data (section {name})")

    def lookup(self, contexts: Ints, candidates: Ints) -> tuple[Floats, Bools]:
        """How often each candidate followed each draft's context: p [K, O, C] = count / total, and seen [K, O].

        contexts [K, N - 1] are the drafts' last tokens, the newest rightmost, -1 where the history is shorter;
        candidates [C]. An unseen context gives p = 0. Counting put one end-of-text before each file: a history
        that begins with the file should begin with it too.
        """
        rows, seen = self.locate(contexts)
        p = np.zeros((*seen.shape, len(candidates)))
        found = rows[seen]  # [S]
        if len(found) and len(candidates):
            starts, widths = self.slices(found)
            places = self.bisect(starts, widths, candidates)  # [S, C]
            counts = self.exact_counts(places)
            counts *= self.columns.tokens.take(places) == candidates
            p[seen] = counts / self.totals(found)[:, None]
        return p, seen

    def successors(self, context: Ints, limit: int) -> tuple[npt.NDArray[np.int64], Floats]:
        """The likeliest next tokens after the longest seen end of one context, and their probabilities."""
        rows, seen = self.locate(np.asarray(context, dtype=np.int64)[None, :])
        if not seen.any():
            return np.empty(0, dtype=np.int64), np.empty(0)
        row = rows[0, seen[0]][-1:]
        starts, widths = self.slices(row)
        places = np.arange(starts[0], starts[0] + widths[0])
        tokens = self.columns.tokens.take(places).astype(np.int64)
        p = self.exact_counts(places) / self.totals(row)
        best = np.lexsort((tokens, -p))[:limit]
        return tokens[best], p[best]

    def locate(self, contexts: Ints) -> tuple[Places, Bools]:
        """Each draft's row for each order, and whether it is that context: [K, N - 1] -> [K, O] twice."""
        back = [order - 2 for order in self.orders]
        latest_first = pad(contexts, back[-1] + 1)[:, ::-1]
        known = (latest_first >= 0)[:, back]  # [K, O]
        keys = self.columns.keys
        if len(keys) == 0:
            return np.zeros(known.shape, dtype=np.intp), np.zeros(known.shape, dtype=bool)
        needed = hash_contexts(latest_first, self.summary.vocab_size)[:, back] | self.tags
        # The needles have the haystack's type: of another, searchsorted would copy the whole table.
        rows = np.minimum(np.searchsorted(keys, needed), len(keys) - 1)
        return rows, known & (keys.take(rows) == needed)

    def slices(self, rows: Places) -> tuple[Places, Places]:
        """Where each row's entries start and how many there are, at least one; kept inside a damaged file."""
        last = len(self.columns.tokens) - 1
        starts = np.minimum(self.columns.pointers.take(rows), last).astype(np.intp)
        ends = np.minimum(self.columns.pointers.take(rows + 1), last + 1).astype(np.intp)
        return starts, np.maximum(ends - starts, 1)

    def bisect(self, starts: Places, widths: Places, candidates: Ints) -> Places:
        """The last entry not above each candidate, all slices and candidates at once: [S], [S], [C] -> [S, C]."""
        tokens = self.columns.tokens
        places = np.repeat(starts[:, None], len(candidates), axis=1)
        left = widths[:, None]
        for _ in range(int(widths.max() - 1).bit_length()):
            half = left >> 1
            places += half * (tokens.take(places + half, mode="clip") <= candidates)
            left = left - half
        return places

    def exact_counts(self, places: Places) -> Floats:
        """The counts of these entries, the large ones from the overflow."""
        counts = self.columns.counts.take(places)
        exact = counts.astype(np.float64)
        many = counts == MANY
        if many.any() and len(self.columns.overflow_places):
            needed = places[many].astype(self.columns.overflow_places.dtype)
            at = np.searchsorted(self.columns.overflow_places, needed)
            exact[many] = self.columns.overflow_counts.take(at, mode="clip")
        return exact

    def totals(self, rows: Places) -> Ints:
        """What followed each context in all; never 0, even in a damaged file."""
        return np.maximum(self.columns.totals.take(rows), 1)


def pad(contexts: Ints, width: int) -> Ints:
    """The rightmost `width` columns, with -1 to the left where there are fewer."""
    missing = width - contexts.shape[1]
    if missing <= 0:
        return contexts[:, -missing:]
    return np.concatenate((np.full((len(contexts), missing), -1), contexts), axis=1)


def map_file(path: Path) -> mmap.mmap:
    """The whole file, mapped for reading."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < PREFIX.size:
                raise refusal(path, "a file without content")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise refusal(path, (error.strerror or str(error)).lower()) from error


def read_header(path: Path, data: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header's fields and where the sections begin."""
    magic, version, length, crc = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise refusal(path, "a file of another kind")
    if version > VERSION:
        raise UserError(
            f"n-gram table {path} has format {version}, this spd-lsp reads {VERSION}; update spd-lsp or {REBUILD}"
        )
    if version < VERSION:
        raise refusal(path, f"the old format {version}, this spd-lsp reads {VERSION}")
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
    if not 0 < vocab_size <= 2**32:
        raise ValueError(vocab_size)
    return TableSummary(
        fingerprint=str(fields["fingerprint"]),
        vocab_size=vocab_size,
        orders=orders,
        min_count=tuple(int(least) for least in fields["min_count"]),
        tokens=int(fields["tokens"]),
        files=int(fields["files"]),
        contexts=int(fields["contexts"]),
        ngrams=int(fields["ngrams"]),
        sources={str(language): int(files) for language, files in fields["sources"].items()},
        size=size,
    )


def read_section(name: str, offset: int, size: int, kind: str, crc: int) -> tuple[int, int, np.dtype[Any], int]:
    """One section's offset, bytes, type and crc; ValueError if it cannot be one."""
    dtype = np.dtype(kind)
    if kind not in DTYPES[name] or offset < 0 or size < 0 or offset % ALIGNMENT or size % dtype.itemsize:
        raise ValueError(name)
    return int(offset), int(size), dtype, int(crc)


def fit(summary: TableSummary, columns: Columns) -> bool:
    """Whether the sections' lengths agree; reads one number of the data."""
    contexts, ngrams = summary.contexts, summary.ngrams
    return (
        len(columns.keys) == len(columns.totals) == contexts
        and len(columns.pointers) == contexts + 1
        and len(columns.tokens) == len(columns.counts) == ngrams
        and len(columns.overflow_places) == len(columns.overflow_counts)
        and int(columns.pointers[-1]) == ngrams
        and (contexts == 0) == (ngrams == 0)
    )

"""Sorted runs -> one table file, chunk by chunk; or one run -> columns in memory.

Knows records and the file's layout, not where counts come from.

Dimensions: G n-grams, R contexts.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ngram_builders.arrays import I64, U64, Ints
from ngram_builders.errors import UserError
from ngram_builders.ngrams import HIGHEST_ORDER, Run, group_starts, hash_bits, other, prune, token_bits
from ngram_builders.scratch import replace_file, write_error
from ngram_builders.table.format import (
    BLOCK_ROWS,
    COUNT_OVERFLOW,
    FINGERPRINT_BITS,
    ONES,
    SECTION_DTYPES,
    SHAPE_BITS,
    TEXT_SECTIONS,
    WIDE,
    WIDE_ROW,
    Columns,
    TableSummary,
    align,
    as_bytes,
    directory_bits,
    pack_header,
    read_summary,
    token_dtype,
)
from ngram_builders.table.suffix_array import SuffixArray

_COPY_BYTES = 1 << 22  # copied at a time when sections are joined
_PIECE_RECORDS = 1 << 17  # grouped at a time
_CHUNK_ROWS = 1 << 20  # contexts sorted into directories at a time
_MAX_ENTRIES = 2**32  # what a pointer can address


def group_by_context(
    run: Run, vocab_size: int, first_row: int = 0, before: Sequence[int] = (0, 0, 0), *, is_signed: bool = True
) -> dict[str, Ints]:
    """A run's rows as parts of sections, and the contexts themselves under "contexts"; no directory.

    before: how many entries, stored counts and wide rows there are before the first row. Counts without signs are
    kept in one byte, and the large ones apart.
    """
    bits = token_bits(vocab_size)
    contexts = run.records >> np.uint64(bits)
    starts = group_starts(contexts)
    widths = np.diff(starts, append=len(run))
    others_before = np.concatenate(([0], np.cumsum(run.counts != 1, dtype=np.int32)))
    all_ones = np.diff(others_before[np.append(starts, len(run))]) == 0
    shapes = np.where(all_ones & (widths <= ONES), widths - 1, np.minimum(widths - 1 + ONES, WIDE))
    stored = widths * (shapes >= ONES)
    stored_before = np.cumsum(stored) - stored
    blocks = slice(-first_row % BLOCK_ROWS, None, BLOCK_ROWS)
    is_wide = widths >= WIDE_ROW
    wide_before = np.cumsum(is_wide) - is_wide
    of_wide = np.cumsum(run.counts[np.repeat(is_wide, widths)], dtype=np.int64)
    totals = np.diff(of_wide[np.cumsum(widths[is_wide]) - 1], prepend=0)
    fingerprints = contexts[starts] & np.uint64(2**FINGERPRINT_BITS - 1)
    pointers = np.stack((starts[blocks], stored_before[blocks], wide_before[blocks]), axis=1) + before
    counts = run.counts[np.repeat(stored > 0, widths)]
    large = np.flatnonzero(counts >= COUNT_OVERFLOW)
    return {
        "contexts": contexts[starts],
        "heads": (fingerprints << np.uint64(SHAPE_BITS) | shapes.astype(np.uint64)).astype("<u4"),
        "pointers": pointers.reshape(-1),
        "tokens": (run.records & np.uint64(2**bits - 1)).astype(token_dtype(vocab_size)),
        "counts": counts if is_signed else np.minimum(counts, COUNT_OVERFLOW),
        "overflow_places": large[: 0 if is_signed else None] + before[1],
        "overflow_counts": counts[large[: 0 if is_signed else None]],
        "wide_widths": widths[is_wide],
        "wide_totals": totals,
    }


def build_columns(run: Run, vocab_size: int) -> Columns:
    """A run, with counts of any sign, as columns in memory."""
    rows = group_by_context(run, vocab_size)
    contexts = rows.pop("contexts").astype(np.uint64, copy=False)
    sizes = _count_orders(contexts, vocab_size)
    ends = np.cumsum(sizes)
    present = (np.flatnonzero(sizes) + 2).tolist()
    places = _place_directories({order: sizes[order - 2] for order in present}, vocab_size)
    parts = [np.empty(0, dtype=np.int64)]
    for order, (_, bits) in places.items():
        row = ends[order - 2] - sizes[order - 2]
        end = ends[order - 2]
        parts += _build_directory([contexts[row:end]], bits, vocab_size, row)
    rows["pointers"] = np.append(rows["pointers"], [len(run), len(rows["counts"]), len(rows["wide_totals"])])
    for name in ("pointers", "wide_widths", "overflow_places", "overflow_counts"):
        rows[name] = rows[name].astype("<u4")
    return Columns(
        **rows,
        directory=np.concatenate(parts).astype("<u4"),
        orders=places,
        vocab_size=vocab_size,
    )


def _count_orders(contexts: Ints, vocab_size: int) -> I64:
    """How many contexts there are of each order, from 2 on."""
    orders = (contexts >> np.uint64(hash_bits(vocab_size))).astype(np.int64)
    return np.bincount(orders, minlength=HIGHEST_ORDER - 1)


def _place_directories(contexts: Mapping[int, int], vocab_size: int) -> dict[int, tuple[int, int]]:
    """Where the directory of each order begins, and its bits. Those of orders without contexts come last."""
    places: dict[int, tuple[int, int]] = {}
    base = 0
    for order in sorted(contexts, key=lambda order: not contexts[order]):
        bits = directory_bits(int(contexts[order]), vocab_size)
        places[order] = (base, bits)
        base += 2**bits + 1
    return places


def _build_directory(chunks: Iterable[U64], bits: int, vocab_size: int, row: int) -> Iterator[I64]:
    """The directory of one order, in pieces: the first row of each bucket. row: the order's first one."""
    done = 0  # buckets
    for chunk in chunks:
        hashes = chunk & np.uint64(2 ** hash_bits(vocab_size) - 1)
        buckets = (hashes >> np.uint64(hash_bits(vocab_size) - bits)).astype(np.int64)
        upcoming = np.arange(done, int(buckets[-1]) + 1)
        yield row + np.searchsorted(buckets, upcoming)
        row = row + len(chunk)
        done = done + len(upcoming)
    yield np.full(2**bits + 1 - done, row)


@dataclass(slots=True)
class _Section:
    """A section being written: its bytes in an unnamed file, their number and checksum."""

    file: IO[bytes]
    dtype: str
    size: int = 0
    crc: int = 0

    def append(self, column: Ints) -> None:
        """Add these values."""
        data = as_bytes(column.astype(self.dtype, copy=False))
        self.file.write(data)
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def padded(self) -> Iterator[bytes]:
        """All bytes, up to the next section's boundary."""
        self.file.seek(0)
        while chunk := self.file.read(_COPY_BYTES):
            yield chunk
        yield b"\0" * (align(self.size) - self.size)


@dataclass(slots=True)
class _TableBuilder:
    """The sections of a table while runs arrive."""

    folder: Path
    vocab_size: int
    stack: ExitStack
    is_signed: bool = False
    contexts: int = 0
    entries: int = 0  # OTHER entries included
    stored: int = 0  # counts
    wide: int = 0  # rows
    ngrams: int = 0
    sizes: I64 = field(default_factory=lambda: np.zeros(HIGHEST_ORDER - 1, dtype=np.int64))  # contexts by order
    sections: dict[str, _Section] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dtypes = {name: kinds[0] for name, kinds in SECTION_DTYPES.items()}
        dtypes["counts"] = SECTION_DTYPES["counts"][self.is_signed]
        for name, dtype in (dtypes | {"tokens": token_dtype(self.vocab_size), "contexts": "<u8"}).items():
            self._open_section(name, dtype)

    def _open_section(self, name: str, dtype: str) -> None:
        """Begin a section."""
        # An unnamed file leaves nothing behind, however the process ends.
        file = tempfile.TemporaryFile(dir=self.folder, prefix=".table")  # noqa: SIM115
        self.sections[name] = _Section(self.stack.enter_context(file), dtype)

    def append(self, run: Run) -> None:
        """Add a run of whole contexts, all counts above 0 unless they are signed."""
        before = [self.entries, self.stored, self.wide]
        rows = group_by_context(run, self.vocab_size, self.contexts, before, is_signed=self.is_signed)
        for name, column in rows.items():
            self.sections[name].append(column)
        self.contexts += len(rows["contexts"])
        self.sizes += _count_orders(rows["contexts"], self.vocab_size)
        self.entries += len(run)
        self.stored += len(rows["counts"])
        self.wide += len(rows["wide_totals"])
        self.ngrams += int((rows["tokens"] != other(self.vocab_size)).sum())
        if self.entries >= _MAX_ENTRIES:
            raise UserError("one table holds fewer than 2^32 n-grams; build several smaller tables")

    def add_texts(self, texts: SuffixArray) -> None:
        """Add the texts that were counted."""
        for name in TEXT_SECTIONS:
            column = getattr(texts, name)
            self._open_section(name, column.dtype.str)
            self.sections[name].append(column)

    def finish(self, orders: Sequence[int]) -> list[list[int]]:
        """Write what is known only at the end; -> [order, where its directory starts, its bits]."""
        self.sections["pointers"].append(np.array([self.entries, self.stored, self.wide]))
        sizes = self.sizes
        places = _place_directories({order: sizes[order - 2] for order in orders}, self.vocab_size)
        ends = np.cumsum(sizes)
        with self.sections.pop("contexts").file as file:
            for order, (_, bits) in places.items():
                size = int(sizes[order - 2])
                end = int(ends[order - 2])
                chunks = _read_contexts(file, end - size, end)
                first = end - size if size else 0
                for part in _build_directory(chunks, bits, self.vocab_size, first):
                    self.sections["directory"].append(part)
        return [[order, *places[order]] for order in orders]


def _read_contexts(file: IO[bytes], start: int, end: int) -> Iterator[U64]:
    """Read some contexts back, not by mapping them: that would hold all of them in memory."""
    for first in range(start, end, _CHUNK_ROWS):
        file.seek(8 * first)
        yield np.frombuffer(file.read(8 * (min(first + _CHUNK_ROWS, end) - first)), "<u8")


def write_table(
    path: Path,
    runs: Iterable[Run],
    *,
    fingerprint: str,
    vocab_size: int,
    orders: Sequence[int],
    min_count: Mapping[int, int],
    tokens: int,
    files: int,
    sources: Mapping[str, int],
    texts: SuffixArray | None = None,
    is_segment: bool = False,
) -> TableSummary:
    """Write a table of sorted runs of whole contexts. The same counts give the same bytes, however they are cut.

    min_count: order -> least count; rarer n-grams are dropped, and the totals still include them. texts: what was
    counted, to be found again at any length. A segment keeps all counts, with their signs.
    """
    try:
        with ExitStack() as stack:
            builder = _TableBuilder(path.parent, vocab_size, stack, is_segment)
            for run in runs:
                kept = run if is_segment else prune(_only_positive(run), min_count, vocab_size)
                for piece in _cut(kept, vocab_size):
                    builder.append(piece)
            places = builder.finish(orders)
            if texts is not None:
                builder.add_texts(texts)
            fields: dict[str, Any] = {
                "fingerprint": fingerprint,
                "vocab_size": vocab_size,
                "orders": list(orders),
                "min_count": [min_count.get(order, 1) for order in orders],
                "tokens": tokens,
                "files": files,
                "contexts": builder.contexts,
                "entries": builder.entries,
                "ngrams": builder.ngrams,
                "sources": dict(sorted(sources.items())),
                "hash": "multilinear-fmix64",
                "directories": places,
            }
            sections = builder.sections
            head, size = pack_header(fields, {name: (s.size, s.dtype, s.crc) for name, s in sections.items()})
            replace_file(path, _file_parts(head, sections.values()))
            return read_summary(fields, size)
    except OSError as error:
        raise write_error(path, error) from error


def _file_parts(head: bytes, sections: Iterable[_Section]) -> Iterator[bytes]:
    """The file's bytes in order."""
    yield head
    for section in sections:
        yield from section.padded()


def _cut(run: Run, vocab_size: int) -> Iterator[Run]:
    """A run in pieces of whole contexts whose arrays fit a cache: grouping one large run takes twice as long."""
    last_token = np.uint64(other(vocab_size))
    start = 0
    while start < len(run):
        last = min(start + _PIECE_RECORDS, len(run)) - 1
        end = int(np.searchsorted(run.records, run.records[last] | last_token, side="right"))
        yield Run(run.records[start:end], run.counts[start:end])
        start = end


def _only_positive(run: Run) -> Run:
    """A run without the n-grams that were taken back more often than they were counted."""
    kept = run.counts > 0
    return run if kept.all() else Run(run.records[kept], run.counts[kept])

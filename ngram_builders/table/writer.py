"""A stream of sorted runs -> one table file, in memory for a piece at a time; or -> columns in memory.

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
import numpy.typing as npt

from ngram_builders.arrays import U64, Ints
from ngram_builders.errors import UserError
from ngram_builders.ngrams import (
    HIGHEST_ORDER,
    Run,
    group_starts,
    hash_bits,
    other,
    prune,
    token_bits,
)
from ngram_builders.table.format import (
    OVERFLOW,
    SECTION_DTYPES,
    WIDE_ROW,
    Columns,
    TableSummary,
    as_bytes,
    directory_bits,
    pack_header,
    read_summary,
    replace_file,
    token_dtype,
)

_CHUNK = 1 << 22  # bytes read at once when sections are put together
_CHUNK_ROWS = 1 << 22  # contexts looked at at once when directories are made


@dataclass(frozen=True, slots=True)
class Rows:
    """A run laid out by context."""

    contexts: U64  # [R] order and hash
    starts: npt.NDArray[np.intp]  # [R] where a context's entries begin
    tokens: Ints  # [G]
    counts: npt.NDArray[np.int32]  # [G]

    @property
    def wide(self) -> Ints:
        """The rows whose totals are written down."""
        return np.flatnonzero(np.diff(self.starts, append=len(self.tokens)) >= WIDE_ROW)

    @property
    def totals(self) -> npt.NDArray[np.int64]:
        """[R] what followed each context in all."""
        if not len(self.starts):
            return np.empty(0, dtype=np.int64)
        return np.add.reduceat(self.counts, self.starts, dtype=np.int64)


def _rows_of(run: Run, vocab_size: int) -> Rows:
    """Group a run's records by context."""
    bits = token_bits(vocab_size)
    contexts = run.records >> np.uint64(bits)
    starts = group_starts(contexts)
    tokens = (run.records & np.uint64(2**bits - 1)).astype(token_dtype(vocab_size))
    return Rows(contexts[starts], starts, tokens, run.counts)


def build_columns(run: Run, vocab_size: int) -> Columns:
    """A run, signed or not, as columns in memory."""
    rows = _rows_of(run, vocab_size)
    wide = rows.wide
    directory, orders = directories([rows.contexts], range(2, HIGHEST_ORDER + 1), vocab_size)
    return Columns(
        directory=directory,
        fingerprints=rows.contexts.astype("<u4"),
        pointers=np.append(rows.starts, len(rows.tokens)).astype("<u4"),
        tokens=rows.tokens,
        counts=rows.counts,
        overflow_places=np.empty(0, dtype="<u4"),
        overflow_counts=np.empty(0, dtype="<u4"),
        wide_rows=wide.astype("<u4"),
        wide_totals=rows.totals[wide],
        orders=orders,
        vocab_size=vocab_size,
    )


def directories(
    contexts: Sequence[U64], orders: Iterable[int], vocab_size: int
) -> tuple[Ints, dict[int, tuple[int, int]]]:
    """The directory of each order that has contexts, in one array; and where each begins, with its bits.

    contexts: sorted, in any number of pieces.
    """
    parts: list[Ints] = []
    places: dict[int, tuple[int, int]] = {}
    base = row = 0
    for order in orders:
        mine = [_of_order(piece, order, vocab_size) for piece in contexts]
        bits = directory_bits(sum(map(len, mine)), vocab_size)
        shift = np.uint64(hash_bits(vocab_size) - bits)
        sizes = np.zeros(2**bits + 1, dtype=np.int64)
        for piece in mine:
            buckets = ((piece & np.uint64(2 ** hash_bits(vocab_size) - 1)) >> shift).astype(np.int64)
            np.add(sizes[1:], np.bincount(buckets, minlength=2**bits), out=sizes[1:])
        if not sizes.any():
            continue
        ends = np.cumsum(sizes) + row
        row = int(ends[-1])
        parts.append(ends.astype("<u4"))
        places[order] = (base, bits)
        base += len(ends)
    return np.concatenate([np.empty(0, dtype="<u4"), *parts]), places


def _of_order(contexts: U64, order: int, vocab_size: int) -> U64:
    """The part of sorted contexts that belongs to one order."""
    tag, bits = order - 2, hash_bits(vocab_size)
    low, high = np.searchsorted(contexts, np.array([tag << bits, (tag + 1) << bits], dtype=np.uint64))
    return contexts[low:high]


@dataclass(slots=True)
class Section:
    """One section on its way: bytes in a nameless file, their number and checksum."""

    file: IO[bytes]
    size: int = 0
    crc: int = 0

    def append(self, column: Ints) -> None:
        """Add these values."""
        data = as_bytes(column)
        self.file.write(data)
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def chunks(self) -> Iterator[bytes]:
        """All bytes, in pieces."""
        self.file.seek(0)
        while chunk := self.file.read(_CHUNK):
            yield chunk


@dataclass(slots=True)
class Scratch:
    """The sections of a table while pieces arrive."""

    folder: Path
    vocab_size: int
    stack: ExitStack
    contexts: int = 0
    entries: int = 0  # OTHER entries included
    ngrams: int = 0
    sections: dict[str, Section] = field(default_factory=dict)

    def section(self, name: str) -> Section:
        """A section, begun if it is new."""
        if name not in self.sections:
            # Without a name nothing is left behind, however the process ends.
            file = tempfile.TemporaryFile(dir=self.folder, prefix=".table")  # noqa: SIM115
            self.sections[name] = Section(self.stack.enter_context(file))
        return self.sections[name]

    def append(self, run: Run) -> None:
        """Add a piece of whole contexts, all counts above 0."""
        rows = _rows_of(run, self.vocab_size)
        many, wide = np.flatnonzero(rows.counts >= OVERFLOW), rows.wide
        arrays = {
            "hashes": rows.contexts,
            "fingerprints": rows.contexts.astype("<u4"),
            "pointers": (rows.starts + self.entries).astype("<u4"),
            "tokens": rows.tokens,
            "counts": np.minimum(rows.counts, OVERFLOW).astype("|u1"),
            "overflow_places": (many + self.entries).astype("<u4"),
            "overflow_counts": rows.counts[many].astype("<u4"),
            "wide_rows": (wide + self.contexts).astype("<u4"),
            "wide_totals": rows.totals[wide],
        }
        for name, column in arrays.items():
            self.section(name).append(column)
        self.contexts += len(rows.contexts)
        self.entries += len(rows.tokens)
        self.ngrams += int((rows.tokens != other(self.vocab_size)).sum())
        if self.entries >= 2**32:
            raise UserError(
                "expected fewer than 2^32 n-grams in one table, found more; build several smaller domains"
            )

    def finish(self, orders: Sequence[int]) -> list[list[int]]:
        """Add what is known only at the end; -> [order, where its directory starts, its bits]."""
        self.section("pointers").append(np.array([self.entries], dtype="<u4"))
        hashes = self.section("hashes").file
        hashes.flush()
        mapped = (
            np.memmap(hashes, np.uint64, "r", 0, (self.contexts,)) if self.contexts else np.empty(0, np.uint64)
        )
        pieces = [mapped[start : start + _CHUNK_ROWS] for start in range(0, self.contexts, _CHUNK_ROWS)]
        parts, places = [], []
        directory, found = directories(pieces, orders, self.vocab_size)
        empty = 2 ** directory_bits(0, self.vocab_size) + 1
        base = len(directory)
        for order in orders:
            if order in found:
                places.append([order, *found[order]])
            else:  # a directory without rows
                places.append([order, base, directory_bits(0, self.vocab_size)])
                parts.append(np.zeros(empty, dtype="<u4"))
                base += empty
        self.section("directory").append(np.concatenate([directory, *parts]))
        return places


def write_table(
    path: Path,
    pieces: Iterable[Run],
    *,
    fingerprint: str,
    vocab_size: int,
    orders: Sequence[int],
    min_count: Mapping[int, int],
    tokens: int,
    files: int,
    sources: Mapping[str, int],
) -> TableSummary:
    """Write a table of sorted pieces of whole contexts. The same counts give the same bytes, however cut.

    min_count: order -> least count; rarer n-grams are dropped, and the totals still include them.
    """
    try:
        with ExitStack() as stack:
            scratch = Scratch(path.parent, vocab_size, stack)
            for piece in pieces:
                scratch.append(prune(_positive(piece), min_count, vocab_size))
            places = scratch.finish(orders)
            fields: dict[str, Any] = {
                "fingerprint": fingerprint,
                "vocab_size": vocab_size,
                "orders": list(orders),
                "min_count": [min_count.get(order, 1) for order in orders],
                "tokens": tokens,
                "files": files,
                "contexts": scratch.contexts,
                "entries": scratch.entries,
                "ngrams": scratch.ngrams,
                "sources": dict(sorted(sources.items())),
                "hash": "multilinear-fmix64",
                "directories": places,
            }
            sections = [(name, scratch.section(name)) for name in SECTION_DTYPES]
            types = {name: kinds[0] for name, kinds in SECTION_DTYPES.items()} | {
                "tokens": token_dtype(vocab_size)
            }
            head, size = pack_header(fields, {name: (s.size, types[name], s.crc) for name, s in sections})
            replace_file(path, _file_parts(head, [section for _, section in sections]))
            return read_summary(fields, size)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free space there or choose another folder"
        ) from error


def _file_parts(head: bytes, sections: Sequence[Section]) -> Iterator[bytes]:
    """The file's bytes in order."""
    yield head
    for section in sections:
        yield from section.chunks()
        yield b"\0" * (-section.size % 64)


def _positive(run: Run) -> Run:
    """Without what was taken back more often than it was counted, which no sound source gives."""
    kept = run.counts > 0
    return run if kept.all() else Run(run.records[kept], run.counts[kept])

"""An opened table: checked, mapped into memory, and read back as counts. Knows no registry and no text."""

from __future__ import annotations

import mmap
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.ngrams import Run, merge
from ngram_builders.table.format import (
    FILE_PREFIX,
    SECTION_DTYPES,
    TEXT_SECTIONS,
    Columns,
    TableError,
    TableSummary,
    align,
    as_bytes,
    fit,
    have_matching_lengths,
    pack_header,
    read_header,
    read_section,
    read_summary,
)
from ngram_builders.table.mapping import map_file
from ngram_builders.table.suffix_array import SuffixArray
from ngram_builders.table.validation import find_foreign_ids, find_invalid_section, find_invalid_text

_CHUNK_ROWS = 1 << 20
_CHECKED_BYTES = 1 << 24  # at once
_KEPT_BYTES = 1 << 27  # of a file that may stay mapped as a whole, even where memory is short
_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """An open table. Immutable, shared between threads without locks."""

    path: Path
    summary: TableSummary
    columns: Columns
    texts: SuffixArray | None  # that were counted, if the table holds them
    crcs: Mapping[str, int]  # the crc32 that each section should have
    fields: Mapping[str, Any]  # its header

    @classmethod
    def open(cls, path: Path, fingerprint: str | None = None) -> Table:
        """Map a table; TableError if its header is damaged or its tokenizer another. `verify` checks the data."""
        data = _map(path)
        fields, start = read_header(path, data)
        try:
            summary = read_summary(fields, len(data))
            kinds = {**SECTION_DTYPES, **(TEXT_SECTIONS if fields["sections"].keys() & TEXT_SECTIONS else {})}
            sections = {name: read_section(kinds[name], *fields["sections"][name]) for name in kinds}
            orders = {int(order): (int(base), int(bits)) for order, base, bits in fields["directories"]}
        except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
            raise TableError(path, "its header is invalid") from error
        end = start + max(align(offset + size) for offset, size, _, _ in sections.values())
        if len(data) != end:
            raise TableError(path, f"it has {len(data):,} bytes instead of {end:,}")
        arrays = {
            name: np.frombuffer(data, dtype, size // dtype.itemsize, start + offset)
            for name, (offset, size, dtype, _) in sections.items()
        }
        texts = SuffixArray(*(arrays.pop(name) for name in TEXT_SECTIONS)) if "text" in arrays else None
        columns = Columns(**arrays, orders=orders, vocab_size=summary.vocab_size)
        if not (have_matching_lengths(summary, columns) and fit(texts, summary)):
            raise TableError(path, "its sections do not match its header")
        if fingerprint not in (None, summary.fingerprint):
            raise TableError(
                path, f"it was built with tokenizer {summary.fingerprint}, the model uses {fingerprint}"
            )
        return cls(path, summary, columns, texts, {name: crc for name, (_, _, _, crc) in sections.items()}, fields)

    def section(self, name: str) -> Ints:
        """One section's values."""
        values: Ints = getattr(self.texts if name in TEXT_SECTIONS else self.columns, name)
        return values

    def verify_checksums(self) -> None:
        """Read every byte; UserError if a checksum differs."""
        for name, crc in self.crcs.items():
            found = 0
            data = as_bytes(self.section(name))
            for start in range(0, len(data), _CHECKED_BYTES):
                found = zlib.crc32(data[start : start + _CHECKED_BYTES], found)
                self.release_pages()
            if found != crc:
                raise TableError(self.path, f"damaged data in section {name}")

    def release_pages(self) -> None:
        """Give back the memory that a large mapped file takes; what is read of it again is mapped again."""
        data = getattr(self.columns.heads.base, "obj", None)
        if isinstance(data, mmap.mmap) and len(data) > _KEPT_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            data.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Read every byte; UserError if a checksum differs or the data is such as no build writes."""
        self.verify_checksums()
        texts = self.texts
        if section := find_invalid_section(self.columns) or (
            texts and find_invalid_text(texts, self.columns.vocab_size)
        ):
            raise TableError(self.path, f"invalid data in section {section}")
        if section := find_foreign_ids(self.columns, texts):
            raise TableError(self.path, f"ids beyond its vocabulary in section {section}")

    def parts_without_texts(self, extra: Mapping[str, Any] = _NO_FIELDS) -> Iterator[bytes | memoryview]:
        """The bytes of the same table without its texts, with extra fields in its header."""
        names = [name for name in self.crcs if name not in TEXT_SECTIONS]
        columns = {name: self.section(name) for name in names}
        sections = {name: (one.nbytes, one.dtype.str, self.crcs[name]) for name, one in columns.items()}
        fields = {name: value for name, value in self.fields.items() if name != "sections"}
        yield pack_header({**fields, **extra}, sections)[0]
        for column in columns.values():
            yield as_bytes(column)
            yield b"\0" * (align(column.nbytes) - column.nbytes)

    def rows_between(self, order: int, part: int, bits: int) -> Run:
        """The counts of one of 2**bits equal ranges of an order's hashes."""
        directory = self.columns.order_directory(order)
        step = self.columns.orders[order][1] - bits
        return self.columns.run(order, int(directory[part << step]), int(directory[part + 1 << step]))


def added_runs(files: Sequence[Table]) -> Iterator[Run]:
    """The counts of all files of a table, added up, in sorted chunks of whole contexts."""
    for order in files[0].summary.orders:
        directories = [file.columns.order_directory(order) for file in files]
        rows = sum(int(directory[-1]) - int(directory[0]) for directory in directories)
        bits = min((rows // _CHUNK_ROWS).bit_length(), *(file.columns.orders[order][1] for file in files))
        for part in range(2**bits):
            yield merge([file.rows_between(order, part, bits) for file in files])


def _map(path: Path) -> mmap.mmap:
    """The whole file."""
    try:
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise TableError(path, "it is not a regular file")  # opening a pipe would wait for a writer
        if stat.S_ISREG(status.st_mode) and status.st_size < FILE_PREFIX.size:
            raise TableError(path, "the file is too short")
        return map_file(path)
    except (OSError, ValueError) as error:  # ValueError: the file was emptied in the meantime
        reason = error.strerror if isinstance(error, OSError) else None
        raise TableError(path, (reason or str(error)).lower()) from error

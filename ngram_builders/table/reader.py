"""An opened table: checked, mapped into memory, and read back as counts. Knows no registry and no text."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ngram_builders.ngrams import Run, hash_bits, merge, token_bits
from ngram_builders.table.format import (
    TEXT_SECTIONS,
    Columns,
    TableError,
    TableFile,
    align,
    as_bytes,
    pack_header,
    read_table,
)
from ngram_builders.table.mapping import is_guarded
from ngram_builders.table.suffix_array import SuffixArray
from ngram_builders.table.validation import find_foreign_ids, find_invalid_section, find_invalid_text

_CHUNK_ROWS = 1 << 20
_CHECKED_BYTES = 1 << 24  # at once
_KEPT_BYTES = 1 << 27  # of a file that may stay mapped as a whole, even where memory is short
_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class Table:
    """An open table. Immutable, shared between threads without locks."""

    def __init__(self, path: Path, file: TableFile, *, stays_mapped: bool) -> None:
        self.path = path
        self.summary = file.summary
        self.mapped = file
        self.stays_mapped = stays_mapped

    @cached_property
    def file(self) -> TableFile:
        """The data: mapped, or read into memory where a file that shrinks while mapped would end the process."""
        return self.mapped if self.stays_mapped else read_table(self.path, into_memory=True)

    @cached_property
    def columns(self) -> Columns:
        """The counts."""
        return self.file.columns

    @cached_property
    def texts(self) -> SuffixArray | None:
        """The texts that were counted, if the table holds them."""
        return self.file.texts

    @property
    def holds_texts(self) -> bool:
        """Whether the table holds the texts that were counted."""
        return self.mapped.texts is not None

    @classmethod
    def open(cls, path: Path, fingerprint: str | None = None, *, stays_mapped: bool = False) -> Table:
        """Map a table; TableError if its header is damaged or its tokenizer another. `verify` checks the data.

        stays_mapped: also where a file that is cut short ends the process; a build can be repeated.
        """
        file = read_table(path)
        if fingerprint is not None and file.summary.fingerprint != fingerprint:
            raise TableError(
                path, f"it was built with tokenizer {file.summary.fingerprint}, the model uses {fingerprint}"
            )
        return cls(path, file, stays_mapped=stays_mapped or is_guarded())

    def verify_checksums(self) -> None:
        """Read every byte; UserError if a checksum differs."""
        for name, crc in self.file.crcs.items():
            found, data = 0, as_bytes(self.file.section(name))
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
        names = [name for name in self.file.crcs if name not in TEXT_SECTIONS]
        columns = {name: self.file.section(name) for name in names}
        sections = {name: (one.nbytes, one.dtype.str, self.file.crcs[name]) for name, one in columns.items()}
        fields = {name: value for name, value in self.file.fields.items() if name != "sections"}
        yield pack_header({**fields, **extra}, sections)[0]
        for column in columns.values():
            yield as_bytes(column)
            yield b"\0" * (align(column.nbytes) - column.nbytes)

    def runs(self) -> Iterator[Run]:
        """The counts that the table was written from, OTHER included, in sorted chunks of whole contexts."""
        for order in self.summary.orders:
            directory = self.columns.order_directory(order)
            first, last = int(directory[0]), int(directory[-1])
            for start in range(first, last, _CHUNK_ROWS):
                yield self._read_rows(order, start, min(start + _CHUNK_ROWS, last))
                self.release_pages()

    def rows_between(self, order: int, part: int, bits: int) -> Run:
        """The counts of one of 2**bits equal ranges of an order's hashes."""
        directory, step = self.columns.order_directory(order), self.columns.orders[order][1] - bits
        return self._read_rows(order, int(directory[part << step]), int(directory[part + 1 << step]))

    def _read_rows(self, order: int, start: int, end: int) -> Run:
        """The records and counts of some rows of one order."""
        columns = self.columns
        contexts = columns.hashes(order, start, end)[0].astype(np.uint64)
        contexts |= np.uint64((order - 2) << hash_bits(columns.vocab_size))
        widths, tokens, counts = columns.read_rows(start, end)
        records = np.repeat(contexts << np.uint64(token_bits(columns.vocab_size)), widths)
        records |= tokens.astype(np.uint64)
        return Run(records, counts.astype(np.int32))


def added_runs(files: Sequence[Table]) -> Iterator[Run]:
    """The counts of all files of a table, added up, in sorted chunks of whole contexts."""
    for order in files[0].summary.orders:
        directories = [file.columns.order_directory(order) for file in files]
        rows = sum(int(directory[-1]) - int(directory[0]) for directory in directories)
        bits = min((rows // _CHUNK_ROWS).bit_length(), *(file.columns.orders[order][1] for file in files))
        for part in range(2**bits):
            yield merge([file.rows_between(order, part, bits) for file in files])

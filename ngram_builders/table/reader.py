"""A table as its users hold it: opened, checked, read back as counts; and changes to it that live in memory.

Knows the file through `layout`, and nothing of registries or text. What tables say of a context is asked through
`query`, of any number of pools at once; the counts of a pool's members add up.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.errors import UserError
from ngram_builders.ngrams import Run, hash_bits, token_bits
from ngram_builders.table.format import (
    FINGERPRINT_BITS,
    OVERFLOW,
    REBUILD,
    SECTION_DTYPES,
    Columns,
    TableSummary,
    as_bytes,
    open_file,
    refusal,
)
from ngram_builders.table.mapping import is_guarded
from ngram_builders.table.soundness import find_unsound_section

_CHUNK_ROWS = 1 << 20  # contexts read back at once


class Table:
    """An open table. Immutable, shared between threads without locks."""

    def __init__(self, path: Path, summary: TableSummary, mapped: Columns, crcs: dict[str, int]) -> None:
        self.path = path
        self.summary = summary
        self.mapped = mapped
        self.crcs = crcs

    @cached_property
    def columns(self) -> Columns:
        """What queries are asked of: the file mapped, or read whole where somebody may cut it short meanwhile."""
        return self.mapped if is_guarded() else open_file(self.path, whole=True)[1]

    @classmethod
    def open(cls, path: Path, fingerprint: str | None = None) -> Table:
        """Map a table, refusing what is damaged or of another tokenizer; `verify` checks the data itself."""
        summary, columns, crcs = open_file(path)
        if fingerprint is not None and summary.fingerprint != fingerprint:
            raise UserError(
                f"n-gram table {path} was built with tokenizer {summary.fingerprint}, "
                f"the model uses {fingerprint}; {REBUILD}"
            )
        return cls(path, summary, columns, crcs)

    def ready(self) -> Table:
        """The same table; what its queries need of the file is there, or UserError says why not."""
        _ = self.columns
        return self

    def verify(self) -> None:
        """Read every byte and raise if one is not what was written, or is what no build writes."""
        for name in SECTION_DTYPES:
            if zlib.crc32(as_bytes(getattr(self.columns, name))) != self.crcs[name]:
                raise refusal(self.path, f"damaged data (section {name})")
        if section := find_unsound_section(self.columns):
            raise refusal(self.path, f"rows that no build writes (section {section})")

    def runs(self) -> Iterator[Run]:
        """The counts that the table was written from, OTHER included, in sorted pieces of whole contexts."""
        for order in self.summary.orders:
            base, bits = self.columns.orders[order]
            directory = self.columns.directory[base : base + 2**bits + 1].astype(np.int64)
            for start in range(int(directory[0]), int(directory[-1]), _CHUNK_ROWS):
                yield self.piece(order, directory, start, min(start + _CHUNK_ROWS, int(directory[-1])))

    def piece(self, order: int, directory: npt.NDArray[np.int64], start: int, end: int) -> Run:
        """The records and counts of some rows of one order."""
        columns = self.columns
        hashed, bits = hash_bits(columns.vocab_size), (len(directory) - 2).bit_length()
        buckets = np.searchsorted(directory, np.arange(start, end), side="right") - 1
        upper = (buckets >> (bits - (hashed - FINGERPRINT_BITS))).astype(np.uint64)
        contexts = (upper << np.uint64(FINGERPRINT_BITS)) | columns.fingerprints[start:end]
        contexts |= np.uint64((order - 2) << hashed)
        pointers = columns.pointers[start : end + 1].astype(np.int64)
        first, last = int(pointers[0]), int(pointers[-1])
        records = np.repeat(contexts << np.uint64(token_bits(columns.vocab_size)), np.diff(pointers))
        records |= columns.tokens[first:last].astype(np.uint64)
        counts = columns.counts[first:last].astype(np.int32)
        many = np.flatnonzero(counts == OVERFLOW)
        places = np.searchsorted(columns.overflow_places, (many + first).astype("<u4"))
        counts[many] = columns.overflow_counts[places]
        return Run(records, counts)

"""A table as its users hold it: opened, checked, read back as counts; and changes to it that live in memory.

Knows the file through `layout`, and nothing of registries or text. What tables say of a context is asked through
`query`, of any number of pools at once; the counts of a pool's members add up.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.counts import Run, hash_bits, hash_contexts, other, token_bits
from ngram_builders.errors import UserError
from ngram_builders.layout import (
    DTYPES,
    FINGERPRINT_BITS,
    MANY,
    REBUILD,
    Columns,
    TableSummary,
    as_bytes,
    open_file,
    refusal,
)
from ngram_builders.writer import columns_of

__all__ = ["Delta", "Table", "TableSummary", "query"]

PIECE = 1 << 20  # contexts read back at once


class Table:
    """An open table. Immutable, shared between threads without locks."""

    def __init__(self, path: Path, summary: TableSummary, columns: Columns, crcs: dict[str, int]) -> None:
        self.path = path
        self.summary = summary
        self.columns = columns
        self.crcs = crcs

    @classmethod
    def open(cls, path: Path, fingerprint: str | None = None) -> Table:
        """Map a table, refusing what is damaged or of another tokenizer; `verify` checks the data itself."""
        summary, columns, crcs = open_file(path)
        if fingerprint is not None and summary.fingerprint != fingerprint:
            raise UserError(
                f"n-gram table {path} was built with tokenizer {summary.fingerprint}, "
                f"the model uses {fingerprint}; {REBUILD} --model MODEL"
            )
        return cls(path, summary, columns, crcs)

    def verify(self) -> None:
        """Read every byte and raise if one is not what was written."""
        for name in DTYPES:
            if zlib.crc32(as_bytes(getattr(self.columns, name))) != self.crcs[name]:
                raise refusal(self.path, f"damaged data (section {name})")

    def runs(self) -> Iterator[Run]:
        """The counts that the table was written from, OTHER included, in sorted pieces of whole contexts."""
        for order in self.summary.orders:
            base, bits = self.columns.orders[order]
            directory = self.columns.directory[base : base + 2**bits + 1].astype(np.int64)
            for start in range(int(directory[0]), int(directory[-1]), PIECE):
                yield self.piece(order, directory, start, min(start + PIECE, int(directory[-1])))

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
        many = np.flatnonzero(counts == MANY)
        places = np.searchsorted(columns.overflow_places, (many + first).astype("<u4"))
        counts[many] = columns.overflow_counts[places]
        return Run(records, counts)


@dataclass(frozen=True, slots=True)
class Delta:
    """What changed since a table was built, signed, in memory. Immutable."""

    columns: Columns
    ngrams: int

    @classmethod
    def of(cls, run: Run, vocab_size: int) -> Delta:
        """A difference of runs, ready to be asked."""
        return cls(columns_of(run, vocab_size), len(run))


class PlainQuery:
    """Stands in until the vectorised query is here: one context and one candidate after the other."""

    def __init__(self, pools: Sequence[Sequence[Columns]], weights: Sequence[float]) -> None:
        self.pools = pools
        self.weights = weights

    def entries(self, pool: Sequence[Columns], context: Sequence[int], order: int) -> Counter[int]:
        """What followed a context: token -> count."""
        found: Counter[int] = Counter()
        latest = list(context[::-1][: order - 1])
        if len(latest) < order - 1 or min(latest) < 0:
            return found
        for columns in pool:
            if order not in columns.orders:
                continue
            hashed = int(hash_contexts(np.array(latest), columns.vocab_size)[-1])
            base, bits = columns.orders[order]
            bucket = base + (hashed >> (hash_bits(columns.vocab_size) - bits))
            for row in range(int(columns.directory[bucket]), int(columns.directory[bucket + 1])):
                if int(columns.fingerprints[row]) == hashed & 0xFFFFFFFF:
                    for place in range(int(columns.pointers[row]), int(columns.pointers[row + 1])):
                        count = int(columns.counts[place])
                        at = np.searchsorted(columns.overflow_places, place)
                        if at < len(columns.overflow_places) and columns.overflow_places[at] == place:
                            count = int(columns.overflow_counts[at])
                        found[int(columns.tokens[place])] += count
        return found

    def mean(
        self, contexts: npt.NDArray[np.integer], candidates: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The weighted mean probabilities [K, 8, C] and the weight of the pools that were heard [K, 8]."""
        p = np.zeros((len(contexts), 8, len(candidates)))
        heard = np.zeros((len(contexts), 8))
        for pool, weight in zip(self.pools, self.weights, strict=True):
            for k, context in enumerate(contexts.tolist()):
                for order in range(2, 10):
                    found = self.entries(pool, context, order)
                    if (total := sum(found.values())) > 0:
                        heard[k, order - 2] += weight
                        p[k, order - 2] += [weight * max(found[c], 0) / total for c in candidates.tolist()]
        return np.divide(p, heard[:, :, None], out=p, where=heard[:, :, None] > 0), heard

    def successors(self, contexts: npt.NDArray[np.integer], n: int) -> npt.NDArray[np.int64]:
        """Up to n tokens of each pool after the longest context known to it, each once, ascending."""
        chosen: set[int] = set()
        for pool in self.pools:
            for context in contexts.tolist():
                for order in range(9, 1, -1):
                    found = self.entries(pool, context, order)
                    found.pop(other(pool[0].vocab_size), None)
                    if best := sorted((-count, token) for token, count in found.items() if count > 0):
                        chosen.update(token for _, token in best[:n])
                        break
        return np.array(sorted(chosen), dtype=np.int64)


def query(pools: Sequence[Sequence[Columns]], weights: Sequence[float]) -> PlainQuery:
    """Pools of counts, ready to be asked any number of times."""
    return PlainQuery(pools, weights)

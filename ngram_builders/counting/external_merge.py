"""More counts than fit into memory: sorted runs on disk, merged in pieces. Knows runs, not text or tables.

Dimensions: G n-grams of a run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.errors import UserError
from ngram_builders.ngrams import Run, count_streams, drop, merge, token_bits
from ngram_builders.table.format import replace_file

_MAX_HELD_BYTES = 192 * 2**20  # of runs, before a counter spills them
_BLOCK_TOKENS = 1_000_000  # counted at once
_PIECE_RECORDS = 3_000_000  # merged at once
_RECORD_BYTES = 12
MAX_TOKENS = 2**31  # what a count can reach


class NgramCounter:
    """Counts any number of token streams in bounded memory; beyond it, sorted runs go to unnamed files.

    The files are in `folder` and vanish with the process, however it ends.
    """

    def __init__(
        self,
        folder: Path,
        *,
        orders: Sequence[int],
        vocab_size: int,
        max_held_bytes: int = _MAX_HELD_BYTES,
        block_tokens: int = _BLOCK_TOKENS,
        once_per_stream: bool = False,
    ) -> None:
        """once_per_stream: count the streams that contain an n-gram, not its occurrences."""
        self.folder = folder
        self.orders = orders
        self.vocab_size = vocab_size
        self.max_held_bytes = max_held_bytes
        self.block_tokens = block_tokens
        self.once_per_stream = once_per_stream
        self.tokens = 0  # counted so far, one end-of-text per stream included
        self.pending: list[Ints] = []
        self.pending_tokens = 0
        self.held: list[Run] = []
        self.spilled: list[Run] = []

    def add(self, streams: Iterable[Ints]) -> None:
        """Count more streams; the end-of-text that each starts with only serves as context."""
        for stream in streams:
            self.pending.append(stream)
            self.pending_tokens += len(stream)
            self.tokens += max(len(stream) - 1, 0)
            if self.pending_tokens >= self.block_tokens:
                self._count_pending()

    def _count_pending(self) -> None:
        """Count what is pending, and merge runs of similar size, so that each n-gram is merged log(runs) times."""
        groups = [[stream] for stream in self.pending] if self.once_per_stream else [self.pending]
        runs = [count_streams(group, orders=self.orders, vocab_size=self.vocab_size) for group in groups]
        if self.once_per_stream:
            runs = [Run(run.records, np.ones_like(run.counts)) for run in runs]
        self.held.append(merge(runs))
        self.pending, self.pending_tokens = [], 0
        while len(self.held) > 1 and len(self.held[-2]) < 2 * len(self.held[-1]):
            self.held[-2:] = [merge(self.held[-2:])]
        if sum(map(len, self.held)) * _RECORD_BYTES > self.max_held_bytes:
            self._spill()

    def _spill(self) -> None:
        """Move what is held in memory to a file, as one run."""
        run = merge(self.held)
        with tempfile.TemporaryFile(dir=self.folder, prefix=".spill") as file:
            file.write(run.records.data)
            file.write(run.counts.data)
            file.flush()
            self.spilled.append(_map_run(file, len(run)))  # the mapping outlives the file
        self.held = []

    def runs(self) -> Iterator[Run]:
        """Yield all counts, sorted, in pieces of whole contexts."""
        if self.pending:
            self._count_pending()
        check_token_count(self.tokens)
        yield from merge_in_pieces([*self.spilled, *self.held], self.vocab_size)


def check_token_count(tokens: int) -> None:
    """Refuse more tokens than counts can hold."""
    if tokens >= MAX_TOKENS:
        raise UserError(f"{tokens:,} tokens are too many for one table (2^31); build several smaller domains")


def write_run(path: Path, pieces: Iterable[Run]) -> int:
    """Write sorted pieces to one file, one piece in memory at a time: all records, then all counts -> n-grams."""
    with tempfile.TemporaryFile(dir=path.parent, prefix=".counts") as counts:

        def parts() -> Iterator[bytes | memoryview]:
            for piece in pieces:
                counts.write(piece.counts.data)
                yield piece.records.data
            counts.seek(0)
            while chunk := counts.read(1 << 22):
                yield chunk

        replace_file(path, parts())
    return path.stat().st_size // _RECORD_BYTES


def read_run(path: Path) -> Run:
    """Map a run that `write_run` wrote."""
    length, rest = divmod(path.stat().st_size, _RECORD_BYTES)
    if rest:
        raise UserError(f"the counts in {path} are cut short; delete that file and count again")
    return _map_run(path, length)


def _map_run(file: Path | IO[bytes], length: int) -> Run:
    """Map a file of so many records and their counts."""
    if not length:
        return merge([])
    records = np.memmap(file, np.uint64, "r", 0, (length,))
    return Run(records, np.memmap(file, np.int32, "r", 8 * length, (length,)))


def drop_unshared(
    pieces: Iterable[Run], file_counts: Iterable[Run], min_files: int, vocab_size: int
) -> Iterator[Run]:
    """Drop from sorted pieces of counts the n-grams that fewer files contain.

    file_counts: in how many files each n-gram is, in sorted pieces too.
    """
    upcoming = iter(file_counts)
    held = merge([])
    for piece in pieces:
        if not len(piece):
            continue
        while not len(held) or held.records[-1] < piece.records[-1]:
            if (more := next(upcoming, None)) is None:
                break
            held = Run(np.concatenate([held.records, more.records]), np.concatenate([held.counts, more.counts]))
        rare = held.counts[np.searchsorted(held.records, piece.records)] < min_files
        yield drop(piece, rare, vocab_size)
        rest = int(np.searchsorted(held.records, piece.records[-1], side="right"))
        held = Run(held.records[rest:], held.counts[rest:])


def merge_in_pieces(runs: Sequence[Run], vocab_size: int, piece_records: int = _PIECE_RECORDS) -> Iterator[Run]:
    """Add sorted runs up, in sorted pieces of whole contexts; memory holds a piece, not the sum."""
    runs = [run for run in runs if len(run)]
    if not runs:
        return
    starts = [0] * len(runs)
    for boundary in _split_evenly(runs, vocab_size, piece_records):
        ends = [len(run) if boundary is None else int(np.searchsorted(run.records, boundary)) for run in runs]
        yield merge(
            [
                Run(np.asarray(run.records[start:end]), np.asarray(run.counts[start:end]))
                for run, start, end in zip(runs, starts, ends, strict=True)
            ]
        )
        starts = ends


def _split_evenly(runs: Sequence[Run], vocab_size: int, piece_records: int) -> list[np.uint64 | None]:
    """Return records that divide all runs into pieces of about that size, at starts of contexts; None is the end.

    Hashes are spread evenly, so what divides the longest run evenly divides all.
    """
    longest = max(runs, key=len).records
    pieces = max(1, -(-sum(map(len, runs)) // piece_records))
    bits = np.uint64(token_bits(vocab_size))
    boundaries = longest[np.linspace(0, len(longest), pieces + 1).astype(np.int64)[1:-1]]
    return [*(np.uint64(record) for record in np.unique((boundaries >> bits) << bits)), None]


def apply_change(pieces: Iterable[Run], change: Run, vocab_size: int) -> Iterator[Run]:
    """Add a signed run to sorted pieces, again in sorted pieces of whole contexts."""
    bits = np.uint64(token_bits(vocab_size))
    contexts = change.records >> bits
    start = 0
    for piece in pieces:
        if not len(piece):
            continue
        end = int(np.searchsorted(contexts, piece.records[-1] >> bits, side="right"))
        yield merge([piece, Run(change.records[start:end], change.counts[start:end])])
        start = end
    yield merge([Run(change.records[start:], change.counts[start:])])

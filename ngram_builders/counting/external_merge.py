"""More counts than fit into memory: sorted runs on disk, merged in pieces. Knows runs, not text or tables.

Few files are open at once: runs of one kind are merged as soon as there are FAN_IN of them.

Dimensions: G n-grams of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.counting.memory import DEFAULT_MEMORY, MemoryLimits, share_memory
from ngram_builders.counting.stored_run import RECORD_BYTES, StoredRun, store_run
from ngram_builders.errors import UserError
from ngram_builders.ngrams import Run, count_streams, drop, merge, token_bits

FAN_IN = 32
BYTES_PER_TOKEN = 3.6  # of code
_MAX_TOKENS = 2**31  # of one table
# Times what would fit: copies and generated files, which do not count, are known only once they are read.
_CERTAIN = 2
_LIMITS = share_memory(DEFAULT_MEMORY)


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
        limits: MemoryLimits = _LIMITS,
        once_per_stream: bool = False,
    ) -> None:
        """once_per_stream: count the streams that contain an n-gram, not its occurrences."""
        self.folder = folder
        self.orders = orders
        self.vocab_size = vocab_size
        self.limits = limits
        self.once_per_stream = once_per_stream
        self.tokens = 0  # counted so far, one end-of-text per stream included
        self.pending: list[Ints] = []
        self.pending_tokens = 0
        self.held: list[Run] = []
        self.spilled: list[list[StoredRun]] = []  # of each round of merges

    def add(self, streams: Iterable[Ints]) -> None:
        """Count more streams; the end-of-text that each starts with only serves as context."""
        for stream in streams:
            self.pending.append(stream)
            self.pending_tokens += len(stream)
            self.tokens += max(len(stream) - 1, 0)
            if self.pending_tokens >= self.limits.block_tokens:
                self._count_pending()

    def _count_pending(self) -> None:
        """Count what is pending, and merge runs of similar size, so that each n-gram is merged log(runs) times."""
        groups = [[stream] for stream in self.pending] if self.once_per_stream else [self.pending]
        runs = [count_streams(group, orders=self.orders, vocab_size=self.vocab_size) for group in groups]
        if self.once_per_stream:
            runs = [Run(run.records, np.ones_like(run.counts)) for run in runs]
        self.held.append(merge(runs))
        self.pending = []
        self.pending_tokens = 0
        while len(self.held) > 1 and len(self.held[-2]) < 2 * len(self.held[-1]):
            self.held[-2:] = [merge(self.held[-2:])]
        if sum(map(len, self.held)) * RECORD_BYTES > self.limits.held_bytes:
            held = self.held
            self.held = []
            self._spill([merge(held)])

    def _spill(self, pieces: Iterable[Run], merged: int = 0) -> None:
        """Move pieces to a file, as a run that was merged so often; merge all of its kind once there are many."""
        if merged == len(self.spilled):
            self.spilled.append([])
        runs = self.spilled[merged]
        runs.append(store_run(self.folder, pieces))
        if len(runs) == FAN_IN:
            self._spill(merge_in_pieces(runs, self.vocab_size, self.limits.piece_records), merged + 1)
            self.spilled[merged] = []

    def runs(self) -> Iterator[Run]:
        """Yield all counts, sorted, in pieces of whole contexts."""
        if self.pending:
            self._count_pending()
        check_token_count(self.tokens)
        spilled = [run for runs in self.spilled for run in runs]
        yield from merge_in_pieces([*spilled, *self.held], self.vocab_size, self.limits.piece_records)


def check_token_count(tokens: int) -> None:
    """Refuse more tokens than counts can hold."""
    if tokens >= _MAX_TOKENS:
        raise UserError(
            f"{tokens:,} tokens are too many for one file (2^31); count them in tasks, with --engine datatrove"
        )


def check_text_size(text_bytes: int) -> None:
    """Refuse text that certainly has more tokens than counts can hold, before hours are spent on it."""
    if text_bytes >= _CERTAIN * _MAX_TOKENS * BYTES_PER_TOKEN:
        raise UserError(
            f"{text_bytes / 1e9:,.0f} GB of code are too much for one file (2^31 tokens); count them in tasks, "
            "with --engine datatrove"
        )


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


def merge_in_pieces(
    runs: Sequence[Run | StoredRun], vocab_size: int, piece_records: int = _LIMITS.piece_records
) -> Iterator[Run]:
    """Add sorted runs up, in sorted pieces of whole contexts; memory holds a piece, not the sum."""
    runs = [run for run in runs if len(run)]
    if not runs:
        return
    starts = [0] * len(runs)
    for boundary in _split_evenly(runs, vocab_size, piece_records):
        ends = [len(run) if boundary is None else run.find(boundary) for run in runs]
        yield merge([run.load(start, end) for run, start, end in zip(runs, starts, ends, strict=True)])
        starts = ends


def _split_evenly(runs: Sequence[Run | StoredRun], vocab_size: int, piece_records: int) -> list[int | None]:
    """Return records that divide all runs into pieces of about that size, at starts of contexts; None is the end.

    Hashes are spread evenly, so what divides the longest run evenly divides all.
    """
    longest = max(runs, key=len)
    pieces = max(1, -(-sum(map(len, runs)) // piece_records))
    bits = token_bits(vocab_size)
    places = (len(longest) * piece // pieces for piece in range(1, pieces))
    return [*sorted({longest.record(place) >> bits << bits for place in places}), None]

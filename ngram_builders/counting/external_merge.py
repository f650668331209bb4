"""More runs than fit into memory: sorted runs on disk, merged in pieces. Knows runs, not text or tables.

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

MEMORY = 192 * 2**20  # bytes of runs that a counter holds before it spills them
BLOCK = 1_000_000  # tokens counted at once
_PIECE = 3_000_000  # records merged at once
_RECORD_BYTES = 12


class Counter:
    """Counts any number of token streams in bounded memory; past it, sorted runs go to files without a name.

    The files are in `folder` and gone when the process ends, however it ends.
    """

    def __init__(
        self,
        folder: Path,
        *,
        orders: Sequence[int],
        vocab_size: int,
        memory: int = MEMORY,
        block: int = BLOCK,
        once: bool = False,
    ) -> None:
        """once: an n-gram counts once in a stream, however often it stands there."""
        self.folder = folder
        self.orders = orders
        self.vocab_size = vocab_size
        self.memory = memory
        self.block = block
        self.once = once
        self.tokens = 0  # counted so far, one end-of-text per stream included
        self.waiting: list[Ints] = []
        self.unread = 0  # tokens that wait
        self.held: list[Run] = []
        self.spilled: list[Run] = []

    def add(self, streams: Iterable[Ints]) -> None:
        """Count these as well. A stream starts with an end-of-text that only serves as context."""
        for stream in streams:
            self.waiting.append(stream)
            self.unread += len(stream)
            self.tokens += max(len(stream) - 1, 0)
            if self.unread >= self.block:
                self.count_waiting()

    def count_waiting(self) -> None:
        """Turn what waits into a run, and merge neighbours of like size: each n-gram is merged log(runs) times."""
        if self.once:
            runs = [count_streams([one], orders=self.orders, vocab_size=self.vocab_size) for one in self.waiting]
            self.held.append(merge([Run(run.records, np.ones_like(run.counts)) for run in runs]))
        else:
            self.held.append(count_streams(self.waiting, orders=self.orders, vocab_size=self.vocab_size))
        self.waiting, self.unread = [], 0
        while len(self.held) > 1 and len(self.held[-2]) < 2 * len(self.held[-1]):
            self.held[-2:] = [merge(self.held[-2:])]
        if sum(map(len, self.held)) * _RECORD_BYTES > self.memory:
            self.spill()

    def spill(self) -> None:
        """Move what is held in memory to a file, as one run."""
        with tempfile.TemporaryFile(dir=self.folder, prefix=".spill") as file:
            self.spilled.append(store(file, merge(self.held)))  # the mapping outlives the file
        self.held = []

    def runs(self) -> Iterator[Run]:
        """All that was counted, sorted, in pieces of whole contexts."""
        if self.waiting:
            self.count_waiting()
        if self.tokens >= 2**31:
            raise UserError(
                f"expected fewer than 2^31 tokens, found {self.tokens:,}; build several smaller domains"
            )
        yield from merged([*self.spilled, *self.held], self.vocab_size)


def store(file: IO[bytes], run: Run) -> Run:
    """Write a run to a file and map it from there."""
    if not len(run):
        return run
    file.write(run.records.data)
    file.write(run.counts.data)
    file.flush()
    records = np.memmap(file, np.uint64, "r", 0, (len(run),))
    return Run(records, np.memmap(file, np.int32, "r", 8 * len(run), (len(run),)))


def shared(pieces: Iterable[Run], files: Iterable[Run], least: int, vocab_size: int) -> Iterator[Run]:
    """Sorted pieces of counts without n-grams that fewer files have than that many.

    files: for every n-gram, in sorted pieces too, how many have it.
    """
    coming = iter(files)
    held = merge([])
    for piece in pieces:
        if not len(piece):
            continue
        while (not len(held) or held.records[-1] < piece.records[-1]) and (more := next(coming, None)) is not None:
            held = Run(np.concatenate([held.records, more.records]), np.concatenate([held.counts, more.counts]))
        few = held.counts[np.searchsorted(held.records, piece.records)] < least
        yield drop(piece, few, vocab_size)
        rest = int(np.searchsorted(held.records, piece.records[-1], side="right"))
        held = Run(held.records[rest:], held.counts[rest:])


def write_run(path: Path, run: Run) -> None:
    """Put a run into a file of its own, as `read_run` takes it: all records, then all counts."""
    with path.open("wb") as file:
        file.write(run.records.data)
        file.write(run.counts.data)


def read_run(path: Path) -> Run:
    """Map a run that `write_run` wrote."""
    size = path.stat().st_size
    if size % _RECORD_BYTES:
        raise UserError(f"expected a run of counts in {path}, found {size:,} bytes; delete it and count again")
    length = size // _RECORD_BYTES
    if not length:
        return merge([])
    records = np.memmap(path, np.uint64, "r", 0, (length,))
    return Run(records, np.memmap(path, np.int32, "r", 8 * length, (length,)))


def merged(runs: Sequence[Run], vocab_size: int, piece: int = _PIECE) -> Iterator[Run]:
    """The sum of sorted runs, in sorted pieces of whole contexts; takes memory for a piece, not for the sum."""
    runs = [run for run in runs if len(run)]
    if not runs:
        return
    ends = _cuts(runs, vocab_size, piece)
    starts = [0] * len(runs)
    for end in ends:
        places = [len(run) if end is None else int(np.searchsorted(run.records, end)) for run in runs]
        yield merge(
            [
                Run(np.asarray(run.records[start:place]), np.asarray(run.counts[start:place]))
                for run, start, place in zip(runs, starts, places, strict=True)
            ]
        )
        starts = places


def _cuts(runs: Sequence[Run], vocab_size: int, piece: int) -> list[np.uint64 | None]:
    """Records that divide all runs into pieces of about that size, each the first of a context; None is the end.

    Hashes are spread evenly, so what divides the longest run evenly divides all.
    """
    longest = max(runs, key=len).records
    pieces = max(1, -(-sum(map(len, runs)) // piece))
    bits = np.uint64(token_bits(vocab_size))
    marks = longest[np.linspace(0, len(longest), pieces + 1).astype(np.int64)[1:-1]]
    return [*(np.uint64(mark) for mark in np.unique((marks >> bits) << bits)), None]


def apply_change(pieces: Iterable[Run], change: Run, vocab_size: int) -> Iterator[Run]:
    """Sorted pieces with a signed run added to them, again in sorted pieces of whole contexts."""
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

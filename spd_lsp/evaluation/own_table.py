"""A stream of ids -> this project's table, and its probabilities: the query in C, and the one in numpy.

Dimensions: K drafts, L context tokens, O orders, C candidates.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders import kernel, lookup
from ngram_builders.spill import Counter
from ngram_builders.tables import Table, query
from ngram_builders.writer import write_table
from spd_lsp.evaluation.stream import ORDERS, Stream

__all__ = ["NAME", "OwnTable", "OwnTableInNumpy", "build", "missing_kernel"]

Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]
NAME = "table.ngt"


def build(stream: Stream, folder: Path) -> None:
    """Count and write, as `build-ngrams` does once it has the ids."""
    counter = Counter(folder, orders=ORDERS, vocab_size=stream.vocab_size)
    counter.add(stream.counted)
    write_table(
        folder / NAME,
        counter.runs(),
        fingerprint="",
        vocab_size=stream.vocab_size,
        orders=ORDERS,
        min_count={},
        tokens=counter.tokens,
        files=stream.known,
        sources={},
    )


def missing_kernel() -> str:
    """Why the query does not run in C."""
    reason = kernel.why_not()
    return f"no compiled kernel: {reason}" if reason else ""


class OwnTable:
    """Asked as a completion asks it, in C."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kernel.why_not()  # loads the kernel, once for all tables of a process

    def open(self) -> None:
        """Map the file."""
        self.pools = [[Table.open(self.folder / NAME).columns]]
        self.mean = query(self.pools, [1.0]).mean

    def prepare(self, contexts: Ints, candidates: Ints) -> tuple[Ints, Ints]:
        """Its natural input."""
        return contexts, candidates

    def step(self, prepared: tuple[Ints, Ints]) -> Floats:
        """The answer to one step, all orders there are."""
        return self.mean(*prepared)[0]

    def probabilities(self, answer: Floats) -> Floats:
        """[K, O, C]"""
        return answer[:, [order - 2 for order in ORDERS]]


class OwnTableInNumpy(OwnTable):
    """The same answers without compiled code."""

    def step(self, prepared: tuple[Ints, Ints]) -> Floats:
        """The answer to one step, all orders there are."""
        return lookup.mean(self.pools, [1.0], *prepared)[0]

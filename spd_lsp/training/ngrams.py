"""The built-in n-gram domains: a language's whole corpus goes in, a table small enough to be shipped comes out.

What several packages write is kept before what one package repeats: it is likelier to be written again elsewhere.
Counting, hashing and the file format are `ngram_builders`'; here is only the choice of what stays.

Dimensions: G distinct n-grams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import U16
from ngram_builders.ngrams import Run, count_streams, group_starts, merge, other, token_bits
from ngram_builders.table.format import TableSummary
from ngram_builders.table.writer import write_table
from spd_lsp.completion.tokenizer import ModelTokenizer

# Order -> how many packages must share an n-gram, and how often it must stand there. Each is a quarter of what
# makes 12 MiB of Python: those were found by raising, from (3, 1), whichever hurt the likelihood of unseen
# packages' code least per byte saved. The counts grow until a table fits.
Least = Mapping[int, tuple[int, int]]
_LEAST: Least = {2: (3, 3), 3: (3, 2), 4: (4, 3), 5: (6, 4), 6: (8, 6)}
_GROWTH = 1.2  # of the counts, from one try to the next
_MAX_BYTES = 6_000_000  # of a language's table

Package = Sequence[U16]  # its documents, each ended by end-of-text
Report = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The n-grams of one order, sorted."""

    records: npt.NDArray[np.uint64]  # [G] order, context hash, token
    counts: npt.NDArray[np.int32]  # [G]
    packages: npt.NDArray[np.uint8]  # [G] how many have it

    def keep(self, packages: int, count: int, vocab_size: int) -> Run:
        """Those that so many packages share and that stand there so often; what else followed becomes OTHER."""
        kept = (self.packages >= packages) & (self.counts >= count)
        contexts = self.records >> np.uint64(token_bits(vocab_size))
        starts = group_starts(contexts)
        some = np.repeat(np.logical_or.reduceat(kept, starts), np.diff(starts, append=len(contexts)))  # [G]
        left = some & ~kept
        rest = Run(self.records[left] | np.uint64(other(vocab_size)), self.counts[left])
        return merge([Run(self.records[kept], self.counts[kept]), rest])


def encode_packages(
    folders: Sequence[Path], wanted: Callable[[Path], bool], tokens: ModelTokenizer
) -> list[list[U16]]:
    """The wanted Python files of each package as ids."""
    packages = []
    for folder in folders:
        texts = [path.read_bytes().decode("utf-8-sig") for path in sorted(folder.rglob("*.py")) if wanted(path)]
        packages.append(
            [np.array([*ids, tokens.end_of_text], dtype=np.uint16) for ids in tokens.encode_batch(texts)]
        )
    return packages


def tally(packages: Sequence[Package], order: int, tokens: ModelTokenizer) -> Tally:
    """Count the n-grams of one order over all packages."""
    runs = [_count_package(documents, order, tokens) for documents in packages if documents]
    records = np.concatenate([run.records for run in runs])
    sorting = np.argsort(records, kind="stable")
    records = records[sorting]
    starts = group_starts(records)
    counts = np.concatenate([run.counts for run in runs])[sorting]
    return Tally(
        records=records[starts],
        counts=np.add.reduceat(counts, starts, dtype=np.int32),
        packages=np.diff(starts, append=len(records)).astype(np.uint8),
    )


def _count_package(documents: Package, order: int, tokens: ModelTokenizer) -> Run:
    """The n-grams of one order in one package."""
    streams = [np.concatenate(([tokens.end_of_text], document)) for document in documents]
    return count_streams(streams, orders=(order,), vocab_size=tokens.vocab_size)


def by_order(packages: Sequence[Package], tokens: ModelTokenizer, least: Least, report: Report) -> Iterator[Run]:
    """What is kept of each order, one after the other: all of them at once would not fit into memory."""
    for order in sorted(least):
        yield tally(packages, order, tokens).keep(*least[order], tokens.vocab_size)
        report(order)


def write_domain(
    packages: Sequence[Package],
    tokens: ModelTokenizer,
    path: Path,
    least: Least = _LEAST,
    report: Report = lambda order: None,
    max_bytes: int = _MAX_BYTES,
) -> TableSummary:
    """Write what packages share, as much as fits, to `LANGUAGE.ngt`; `report` hears of each order.

    The same ids give the same bytes.
    """
    documents = [document for package in packages for document in package]
    runs = list(by_order(packages, tokens, least, report))
    scale = 1.0
    while True:
        summary = write_table(
            path,
            runs,
            fingerprint=tokens.fingerprint,
            vocab_size=tokens.vocab_size,
            orders=sorted(least),
            min_count={order: round(scale * count) for order, (_, count) in least.items()},
            tokens=sum(len(document) for document in documents),
            files=len(documents),
            sources={path.stem: len(documents)},
        )
        if summary.size <= max_bytes or not summary.ngrams:
            return summary
        scale *= _GROWTH

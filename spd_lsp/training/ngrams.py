"""Build the built-in n-gram tables: from a language's whole corpus, a table small enough to ship.

N-grams that packages share are preferred over those that one package repeats: they are likelier in new code.
Counting, hashing and the file format are those of `ngram_builders`; this file only selects n-grams.

Dimensions: G distinct n-grams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import U16
from ngram_builders.ngrams import Run, count_streams, group_starts, merge, other, token_bits
from ngram_builders.table.format import TableSummary
from ngram_builders.table.writer import write_table
from spd_lsp.completion.tokenizer import ModelTokenizer

# Order -> how many packages must share an n-gram, and how often it must occur. Each is a quarter of the value that
# gives 12 MiB of Python: those were found by raising, from (3, 1), whichever hurt the likelihood of unseen
# packages' code least per byte saved. The counts grow until a table fits.
MinCounts = Mapping[int, tuple[int, int]]
_MIN_COUNTS: MinCounts = {2: (3, 3), 3: (3, 2), 4: (4, 3), 5: (6, 4), 6: (8, 6)}
_GROWTH = 1.2  # of the counts, from one try to the next
_MAX_BYTES = 4_900_000  # of a language's table

PackageIds = Sequence[U16]  # the ids of its documents, each ending with end-of-text


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramTally:
    """The n-grams of one order, sorted."""

    records: npt.NDArray[np.uint64]  # [G] order, context hash, token
    counts: npt.NDArray[np.int32]  # [G]
    packages: npt.NDArray[np.uint8]  # [G] how many contain it

    def keep(self, packages: int, count: int, vocab_size: int) -> Run:
        """Keep n-grams with this many packages and occurrences; other tokens of their contexts become OTHER."""
        kept = (self.packages >= packages) & (self.counts >= count)
        contexts = self.records >> np.uint64(token_bits(vocab_size))
        starts = group_starts(contexts)
        in_kept_context = np.repeat(
            np.logical_or.reduceat(kept, starts), np.diff(starts, append=len(contexts))
        )  # [G]
        dropped = in_kept_context & ~kept
        others = Run(self.records[dropped] | np.uint64(other(vocab_size)), self.counts[dropped])
        return merge([Run(self.records[kept], self.counts[kept]), others])


def encode_packages(
    folders: Sequence[Path], wanted: Callable[[Path], bool], tokens: ModelTokenizer
) -> list[list[U16]]:
    """Encode the wanted files of each package."""
    packages = []
    for folder in folders:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and wanted(path))
        texts = [path.read_bytes().decode("utf-8-sig") for path in paths]
        packages.append(
            [np.array([*ids, tokens.end_of_text], dtype=np.uint16) for ids in tokens.encode_batch(texts)]
        )
    return packages


def count_order(packages: Sequence[PackageIds], order: int, tokens: ModelTokenizer) -> NgramTally:
    """Count the n-grams of one order over all packages."""
    runs = [_count_package(documents, order, tokens) for documents in packages if documents]
    records = np.concatenate([run.records for run in runs])
    sorting = np.argsort(records, kind="stable")
    records = records[sorting]
    starts = group_starts(records)
    counts = np.concatenate([run.counts for run in runs])[sorting]
    return NgramTally(
        records=records[starts],
        counts=np.add.reduceat(counts, starts, dtype=np.int32),
        packages=np.diff(starts, append=len(records)).astype(np.uint8),
    )


def _count_package(documents: PackageIds, order: int, tokens: ModelTokenizer) -> Run:
    streams = [np.concatenate(([tokens.end_of_text], document)) for document in documents]
    return count_streams(streams, orders=(order,), vocab_size=tokens.vocab_size)


def write_built_in(
    packages: Sequence[PackageIds],
    tokens: ModelTokenizer,
    path: Path,
    min_counts: MinCounts = _MIN_COUNTS,
    max_bytes: int = _MAX_BYTES,
) -> TableSummary:
    """Write as many shared n-grams as fit to `LANGUAGE.ngt`. The same ids give the same bytes."""
    documents = [document for package in packages for document in package]
    runs = [  # order by order: all counts at once would not fit into memory
        count_order(packages, order, tokens).keep(*min_counts[order], tokens.vocab_size)
        for order in sorted(min_counts)
    ]
    scale = 1.0
    while True:
        summary = write_table(
            path,
            runs,
            fingerprint=tokens.fingerprint,
            vocab_size=tokens.vocab_size,
            orders=sorted(min_counts),
            min_count={order: round(scale * count) for order, (_, count) in min_counts.items()},
            tokens=sum(len(document) for document in documents),
            files=len(documents),
            sources={path.stem: len(documents)},
        )
        if summary.size <= max_bytes or not summary.ngrams:
            return summary
        scale *= _GROWTH

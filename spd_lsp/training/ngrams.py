"""The built-in n-gram domain: the whole corpus goes in, one table small enough to be shipped comes out.

What several packages write is kept before what one package repeats: it is likelier to be written again elsewhere.
Counting, hashing and the file format are `ngram_builders`'; here is only the choice of what stays.

Dimensions: G distinct n-grams, R distinct contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.counts import Contexts, Counts, count, hash_bits
from ngram_builders.tables import TableSummary, write
from spd_lsp.tokens import Tokens

# Order -> how many packages must share an n-gram, and how often it must stand in them all. Found by raising, from
# (3, 1), whichever least hurt the likelihood of code of the development packages per byte saved, down to 12 MiB.
Least = Mapping[int, tuple[int, int]]
LEAST: Least = {2: (3, 12), 3: (3, 6), 4: (4, 10), 5: (6, 16), 6: (8, 24)}

Ids = npt.NDArray[np.uint16]
Package = Sequence[Ids]  # its documents, each ended by end-of-text
Report = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The n-grams of one order, sorted."""

    order: int
    bits: int  # of a record that hold the token
    records: npt.NDArray[np.uint64]  # [G] context hash << bits | token
    counts: npt.NDArray[np.uint32]  # [G]
    packages: npt.NDArray[np.uint8]  # [G] how many have it
    totals: npt.NDArray[np.uint32]  # [G] all that followed the context, anywhere

    def keep(self, packages: int, count: int) -> Tally:
        """Those that so many packages share and that stand there so often; the totals stay."""
        kept = (self.packages >= packages) & (self.counts >= count)
        return Tally(
            order=self.order,
            bits=self.bits,
            records=self.records[kept],
            counts=self.counts[kept],
            packages=self.packages[kept],
            totals=self.totals[kept],
        )

    def contexts(self) -> Contexts:
        """Laid out by context, as tables are written."""
        owners = self.records >> np.uint64(self.bits)
        starts = starts_of(owners)
        return Contexts(
            order=self.order,
            keys=owners[starts],
            pointers=np.append(starts, len(owners)).astype(np.int64),
            tokens=(self.records & np.uint64(2**self.bits - 1)).astype(np.uint32),
            counts=self.counts,
            totals=self.totals[starts],
        )


def starts_of(ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Where each run of equal values begins. Example: [4, 4, 9] -> [0, 2]."""
    changes = np.ones(len(ordered), dtype=np.bool_)
    changes[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(changes)


def encode_packages(folders: Sequence[Path], wanted: Callable[[Path], bool], tokens: Tokens) -> list[list[Ids]]:
    """The wanted Python files of each package as ids."""
    packages = []
    for folder in folders:
        texts = [path.read_bytes().decode("utf-8-sig") for path in sorted(folder.rglob("*.py")) if wanted(path)]
        packages.append(
            [np.array([*ids, tokens.end_of_text], dtype=np.uint16) for ids in tokens.encode_batch(texts)]
        )
    return packages


def tally(packages: Sequence[Package], order: int, tokens: Tokens) -> Tally:
    """Count the n-grams of one order over all packages."""
    parts = [count_package(documents, order, tokens) for documents in packages if documents]
    records = np.concatenate([part[0] for part in parts])
    sorting = np.argsort(records, kind="stable")
    records = records[sorting]
    counts = np.concatenate([part[1] for part in parts])[sorting]
    starts = starts_of(records)
    sharing = np.diff(starts, append=len(records)).astype(np.uint8)
    records, counts = records[starts], np.add.reduceat(counts, starts, dtype=np.uint32)
    bits = 64 - hash_bits(tokens.vocab_size)
    contexts = starts_of(records >> np.uint64(bits))
    totals = np.add.reduceat(counts, contexts, dtype=np.uint32)  # [R]
    return Tally(
        order=order,
        bits=bits,
        records=records,
        counts=counts,
        packages=sharing,
        totals=np.repeat(totals, np.diff(contexts, append=len(records))),
    )


def count_package(
    documents: Package, order: int, tokens: Tokens
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """The n-grams of one package: records and counts, sorted."""
    counted = count(documents, end_of_text=tokens.end_of_text, vocab_size=tokens.vocab_size, orders=(order,))
    part = counted.by_order[0]
    contexts = np.repeat(part.keys, np.diff(part.pointers))
    return (contexts << np.uint64(64 - hash_bits(tokens.vocab_size))) | part.tokens, part.counts


def write_domain(
    packages: Sequence[Package],
    tokens: Tokens,
    path: Path,
    least: Least = LEAST,
    report: Report = lambda order: None,
) -> TableSummary:
    """Write a table of what the packages share; `report` hears of each order. The same ids, the same bytes."""
    by_order = []
    for order in sorted(least):
        by_order.append(tally(packages, order, tokens).keep(*least[order]).contexts())
        report(order)
    documents = [document for package in packages for document in package]
    counts = Counts(
        vocab_size=tokens.vocab_size,
        tokens=sum(len(document) - 1 for document in documents),
        documents=len(documents),
        min_count=tuple(least[order][1] for order in sorted(least)),
        by_order=tuple(by_order),
    )
    return write(path, counts, fingerprint=tokens.fingerprint, sources={"python": len(documents)})

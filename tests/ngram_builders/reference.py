"""Reference counts with dictionaries and loops: slow and obviously correct."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from ngram_builders.counting.external_merge import NgramCounter
from ngram_builders.ngrams import ORDERS, Run, count_streams, other, token_bits
from ngram_builders.table.format import TableSummary
from ngram_builders.table.suffix_array import SuffixArray
from ngram_builders.table.writer import write_table

END = 0
SMALL = (0, 1, 2, 3)
LARGE = (0, 1, 65_535, 65_536, 151_664)  # ids that need more than 16 bits
LARGE_VOCABULARY = 151_665

Documents = list[list[int]]
Successors = dict[tuple[int, ...], Counter[int]]


def documents(ids: Sequence[int] = SMALL) -> st.SearchStrategy[Documents]:
    """Generate a few short documents with few distinct tokens, so that contexts repeat."""
    return st.lists(st.lists(st.sampled_from(ids), max_size=12), max_size=6)


def arrays(texts: Documents) -> list[np.ndarray]:
    """Return the streams to count: END precedes each document."""
    return [np.array([END, *text], dtype=np.int64) for text in texts]


def successors(texts: Documents, order: int) -> Successors:
    """Return the successor counts of each context of order - 1 tokens; END precedes each document."""
    counts: Successors = defaultdict(Counter)
    for text in texts:
        padded = [END, *text]
        for i in range(order - 1, len(padded)):
            counts[tuple(padded[i - order + 1 : i])][padded[i]] += 1
    return counts


def record(order: int, context: Sequence[int], token: int, vocab_size: int) -> int:
    """Return the record that represents an n-gram."""
    return hash_of(tuple(context), vocab_size, order) << token_bits(vocab_size) | token


@cache
def hash_of(context: tuple[int, ...], vocab_size: int, order: int) -> int:
    """Return the hash of a context of order - 1 tokens, with the order above it."""
    run = count_streams([np.array([*context, 0])], orders=(order,), vocab_size=vocab_size)
    return run.record(0) >> token_bits(vocab_size)


def expected_run(
    texts: Documents, vocab_size: int, orders: Sequence[int] = ORDERS, least: int = 1
) -> dict[int, int]:
    """Return the counts by record; n-grams rarer than `least` are merged into their context's OTHER."""
    counts: Counter[int] = Counter()
    for order in orders:
        for context, followed in successors(texts, order).items():
            if max(followed.values()) < least:
                continue
            for token, count in followed.items():
                kept = token if count >= least else other(vocab_size)
                counts[record(order, context, kept, vocab_size)] += count
    return dict(counts)


def as_dict(run: Run) -> dict[int, int]:
    """Return the counts by record."""
    return dict(zip(run.records.tolist(), run.counts.tolist(), strict=True))


def run_of_texts(texts: Documents, vocab_size: int = 4, orders: Sequence[int] = ORDERS) -> Run:
    """Count whole documents."""
    return count_streams(arrays(texts), orders=orders, vocab_size=vocab_size)


def write_texts(
    path: Path,
    texts: Documents,
    vocab_size: int = 4,
    *,
    orders: Sequence[int] = ORDERS,
    least: int = 1,
    fingerprint: str = "a1b2",
    sources: dict[str, int] | None = None,
    searched: SuffixArray | None = None,
    **options: int,
) -> TableSummary:
    """Write a table of these documents as a build does."""
    counter = NgramCounter(path.parent, orders=orders, vocab_size=vocab_size, **options)
    counter.add(arrays(texts))
    return write_table(
        path,
        counter.runs(),
        fingerprint=fingerprint,
        vocab_size=vocab_size,
        orders=sorted(orders),
        min_count=dict.fromkeys(orders, least),
        tokens=counter.tokens,
        files=len(texts),
        sources={"python": len(texts)} if sources is None else sources,
        texts=searched,
    )

"""The same counts with dictionaries and loops: slow, and plainly right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from ngram_builders.counting.external_merge import NgramCounter
from ngram_builders.ngrams import ORDERS, Run, count_streams, hash_contexts, other, token_bits
from ngram_builders.table.format import TableSummary
from ngram_builders.table.writer import write_table

END = 0
SMALL = (0, 1, 2, 3)
LARGE = (0, 1, 65_535, 65_536, 151_664)  # ids that need more than 16 bits
LARGE_VOCABULARY = 151_665

Documents = list[list[int]]
Successors = dict[tuple[int, ...], Counter[int]]


def documents(ids: Sequence[int] = SMALL) -> st.SearchStrategy[Documents]:
    """A few short documents of few different tokens, so that contexts repeat."""
    return st.lists(st.lists(st.sampled_from(ids), max_size=12), max_size=6)


def arrays(texts: Documents) -> list[np.ndarray]:
    """The streams that are counted: END stands once before each document."""
    return [np.array([END, *text], dtype=np.int64) for text in texts]


def successors(texts: Documents, order: int) -> Successors:
    """What followed each context of order - 1 tokens, END standing once before each document."""
    found: Successors = defaultdict(Counter)
    for text in texts:
        padded = [END, *text]
        for i in range(order - 1, len(padded)):
            found[tuple(padded[i - order + 1 : i])][padded[i]] += 1
    return found


def record(order: int, context: Sequence[int], token: int, vocab_size: int) -> int:
    """The number that stands for one n-gram."""
    hashed = int(hash_contexts(np.array(context[::-1]), vocab_size)[-1])
    return (order - 2) << 61 | hashed << token_bits(vocab_size) | token


def expected_run(
    texts: Documents, vocab_size: int, orders: Sequence[int] = ORDERS, least: int = 1
) -> dict[int, int]:
    """Record -> count, what is rarer than `least` gathered in its context's OTHER."""
    found: Counter[int] = Counter()
    for order in orders:
        for context, followed in successors(texts, order).items():
            if max(followed.values()) < least:
                continue
            for token, count in followed.items():
                kept = token if count >= least else other(vocab_size)
                found[record(order, context, kept, vocab_size)] += count
    return dict(found)


def as_dict(run: Run) -> dict[int, int]:
    """Record -> count."""
    return dict(zip(run.records.tolist(), run.counts.tolist(), strict=True))


def run_of_texts(texts: Documents, vocab_size: int = 4, orders: Sequence[int] = ORDERS) -> Run:
    """The counts of whole documents."""
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
    **options: int,
) -> TableSummary:
    """A table of these documents, written as a build writes it."""
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
    )

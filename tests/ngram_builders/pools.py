"""Pools of small tables, and reference queries with dictionaries and loops: slow and obviously correct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from ngram_builders.ngrams import Run, other, prune
from ngram_builders.table.format import COUNT_OVERFLOW, Columns
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.reference import (
    LARGE,
    LARGE_VOCABULARY,
    Documents,
    documents,
    run_of_texts,
    successors,
)

MANY_IDS = tuple(range(45))  # enough for rows that store their totals


@dataclass(frozen=True)
class Part:
    """Documents, each counted a number of times; negative where they were subtracted."""

    texts: Documents
    times: int
    packed: bool = False  # counts in one byte, as in a file
    least: int = 1  # rarer n-grams were pruned

    def columns(self, orders: Sequence[int], vocab_size: int) -> Columns:
        run = prune(run_of_texts(self.texts, vocab_size, orders), dict.fromkeys(orders, self.least), vocab_size)
        signed = build_columns(Run(run.records, (run.counts * self.times).astype(np.int32)), vocab_size)
        return packed_columns(signed) if self.packed else signed

    def followed(self, context: Sequence[int], vocab_size: int) -> Counter[int]:
        """Return the successor counts of a context."""
        counts = successors(self.texts, len(context) + 1).get(tuple(context), Counter())
        kept = Counter({token: count * self.times for token, count in counts.items() if count >= self.least})
        if kept and len(kept) < len(counts):
            kept[other(vocab_size)] = self.times * sum(counts.values()) - sum(kept.values())
        return kept


@dataclass(frozen=True)
class Case:
    """A query and the pools to query."""

    pools: list[list[Part]]
    weights: list[float]
    orders: tuple[int, ...]
    vocab_size: int
    contexts: np.ndarray  # [K, L]
    candidates: np.ndarray  # [C]
    n: int

    def columns(self) -> list[list[Columns]]:
        return [[part.columns(self.orders, self.vocab_size) for part in pool] for pool in self.pools]

    def followed(self, pool: Sequence[Part], context: Sequence[int], order: int) -> Counter[int]:
        """Return the successor counts of the last order - 1 tokens in all parts of a pool."""
        found: Counter[int] = Counter()
        if order in self.orders and len(context) >= order - 1:
            for part in pool:
                for token, count in part.followed(context[-order + 1 :], self.vocab_size).items():
                    found[token] += count
        return found

    def known(self) -> list[list[int]]:
        """Return the contexts without padding and what precedes it."""
        rows = self.contexts.tolist()
        return [row[max((i + 1 for i, token in enumerate(row) if token < 0), default=0) :] for row in rows]

    def mean(self) -> tuple[np.ndarray, np.ndarray]:
        p = np.zeros((len(self.contexts), 8, len(self.candidates)))
        matched = np.zeros((len(self.contexts), 8))
        for k, context in enumerate(self.known()):
            for order in range(2, 10):
                counts = [self.followed(pool, context, order) for pool in self.pools]
                seen = [(c, w) for c, w in zip(counts, self.weights, strict=True) if sum(c.values()) > 0]
                matched[k, order - 2] = sum(weight for _, weight in seen)
                for found, weight in seen:
                    total = sum(found.values())
                    del found[other(self.vocab_size)]
                    likely = [min(1.0, max(0, found[c]) / total) for c in self.candidates.tolist()]
                    p[k, order - 2] += weight / matched[k, order - 2] * np.array(likely)
        return p, matched

    def successors(self) -> list[int]:
        chosen: set[int] = set()
        for pool in self.pools:
            for context in self.known():
                for order in range(9, 1, -1):
                    found = self.followed(pool, context, order)
                    total = sum(found.values())
                    del found[other(self.vocab_size)]
                    likeliest = sorted((-count, token) for token, count in found.items() if count > 0)
                    if total > 0 and likeliest:
                        chosen.update(token for _, token in likeliest[: self.n])
                        break
        return sorted(chosen)


def packed_columns(columns: Columns) -> Columns:
    """Return the columns with counts in one byte and the large ones apart."""
    many = np.flatnonzero(columns.counts >= COUNT_OVERFLOW)
    return replace(
        columns,
        counts=np.minimum(columns.counts, COUNT_OVERFLOW).astype("|u1"),
        overflow_places=many.astype("<u4"),
        overflow_counts=columns.counts[many].astype("<u4"),
    )


@st.composite
def wide_documents(draw: st.DrawFn, ids: Sequence[int]) -> Documents:
    """Generate a document in which many tokens follow token 0, some of them twice."""
    most = min(30, len(ids))
    once, twice = draw(st.integers(most, len(ids))), draw(st.integers(most, len(ids)))
    return [[token for i in (*ids[:once], *ids[:twice]) for token in (0, i)]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Generate any pools and any query."""
    ids, vocab_size = draw(st.sampled_from([((0, 1, 2, 3), 50), (MANY_IDS, 50), (LARGE, LARGE_VOCABULARY)]))
    texts = st.one_of(documents(ids[:4]), documents(ids), wide_documents(ids))
    kept = st.builds(
        Part, texts, st.sampled_from([1, 2, 100, 300, 70_000]), st.booleans(), st.sampled_from([1, 2])
    )
    taken = st.builds(Part, texts, st.sampled_from([-1, -2, -300]))
    pools = draw(st.lists(st.lists(st.one_of(kept, taken), max_size=4), max_size=3))
    token = st.sampled_from((*ids, vocab_size - 1))
    length = draw(st.integers(0, 10))
    context = st.lists(st.one_of(token, st.sampled_from(ids[:4]), st.just(-1)), min_size=length, max_size=length)
    contexts = draw(st.lists(context, max_size=5))
    impossible = st.sampled_from([-1, -(2**60), other(vocab_size), 2**16 - 1, 2**32, 2**32 + 1, 2**63 - 1])
    candidates = draw(st.lists(st.one_of(token, impossible), max_size=8))
    return Case(
        pools=pools,
        weights=[draw(st.sampled_from([0.1, 0.3, 0.7, 1.0, 3.0])) for _ in pools],
        orders=tuple(draw(st.lists(st.integers(2, 9), min_size=1, unique=True))),
        vocab_size=vocab_size,
        contexts=np.array(contexts, dtype=np.int64).reshape(len(contexts), length),
        candidates=np.array(candidates, dtype=np.int64),
        n=draw(st.sampled_from([0, 1, 2, 3, 20, 10**9])),
    )

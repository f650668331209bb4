"""Pools of small tables, and reference queries with dictionaries and loops: slow and obviously correct."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from hypothesis import strategies as st

from ngram_builders.ngrams import Run, hash_bits, other, prune
from ngram_builders.table.format import COUNT_OVERFLOW, Columns
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.reference import (
    LARGE,
    LARGE_VOCABULARY,
    Documents,
    documents,
    hash_of,
    run_of_texts,
    successors,
)

Followed = Callable[[Sequence[int], int], Counter[int]]  # context, order -> how often each token came next

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

    def expected(self) -> Expected:
        pools = [partial(self.followed, pool) for pool in self.pools]
        return Expected(pools, self.weights, self.vocab_size, self.contexts)

    def followed(self, pool: Sequence[Part], context: Sequence[int], order: int) -> Counter[int]:
        """Return the successor counts of the last order - 1 tokens in all parts of a pool."""
        found: Counter[int] = Counter()
        if order in self.orders and len(context) >= order - 1:
            for part in pool:
                for token, count in part.followed(context[-order + 1 :], self.vocab_size).items():
                    found[token] += count
        return found


def counted(pool: Sequence[Columns]) -> Followed:
    """Return what follows a context according to all rows of some columns, looked up in a dictionary."""
    vocab_size = pool[0].vocab_size if pool else 1
    rows: dict[int, Counter[int]] = defaultdict(Counter)
    for columns in pool:
        for order in columns.orders:
            directory = columns.order_directory(order)
            first, end = int(directory[0]), int(directory[-1])
            widths, tokens, counts = columns.read_rows(first, end)
            contexts = columns.hashes(order, first, end)[0] | (order - 2) << hash_bits(vocab_size)
            hashes = np.repeat(contexts, widths).tolist()
            for hashed, token, count in zip(hashes, tokens.tolist(), counts.tolist(), strict=True):
                rows[hashed][token] += count

    def followed(context: Sequence[int], order: int) -> Counter[int]:
        known = tuple(context[-order + 1 :])
        if len(known) < order - 1 or max(known) >= other(vocab_size):
            return Counter()
        return rows.get(hash_of(known, vocab_size, order), Counter()).copy()

    return followed


@dataclass(frozen=True)
class Expected:
    """What queries return, by dictionaries and loops."""

    pools: Sequence[Followed]
    weights: Sequence[float]
    vocab_size: int
    contexts: np.ndarray  # [K, L]

    def known(self) -> list[list[int]]:
        """Return the contexts without padding and what precedes it."""
        rows = self.contexts.tolist()
        return [row[max((i + 1 for i, token in enumerate(row) if token < 0), default=0) :] for row in rows]

    def seen(self, context: Sequence[int], order: int) -> dict[int, Counter[int]]:
        """Return the successor counts of the last order - 1 tokens, of each pool that has any."""
        found = {at: followed(context, order) for at, followed in enumerate(self.pools)}
        return {at: counts for at, counts in found.items() if sum(counts.values()) > 0}

    def probabilities(self, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, matched = np.zeros((len(self.contexts), 8, len(candidates))), np.zeros((len(self.contexts), 8))
        for k, context in enumerate(self.known()):
            for order in range(2, 10):
                seen = self.seen(context, order)
                matched[k, order - 2] = sum(self.weights[at] for at in seen)
                for at, found in seen.items():
                    total = sum(found.values())
                    del found[other(self.vocab_size)]
                    likely = [min(1.0, max(0, found[c]) / total) for c in candidates.tolist()]
                    p[k, order - 2] += self.weights[at] / matched[k, order - 2] * np.array(likely)
        return p, matched

    def successors(self, n: int) -> list[int]:
        chosen: set[int] = set()
        for at in range(len(self.pools)):
            for context in self.known():
                for order in range(9, 1, -1):
                    found = self.seen(context, order).get(at, Counter())
                    likeliest = sorted((-count, token) for token, count in found.items() if count > 0)
                    likeliest = [one for one in likeliest if one[1] != other(self.vocab_size)]
                    if likeliest:
                        chosen.update(token for _, token in likeliest[:n])
                        break
        return sorted(chosen)

    def mix(self, candidates: np.ndarray, p: np.ndarray, order_weights: np.ndarray) -> np.ndarray:
        """(1 - sum_o w[o]) p + sum_o w[o] p_o; order_weights [W, 9, 8].

        w is a mean of rows, by how much more weight has seen contexts of that length than longer ones, up to 1.
        """
        p_o, matched = self.probabilities(candidates)
        mixed = np.broadcast_to(p, (len(self.contexts), len(candidates))).copy()
        for k, context in enumerate(self.known()):
            w = np.zeros(8)
            given = 0.0
            for order in range(9, 1, -1):
                say = max(0.0, min(1.0, matched[k, order - 2]) - given)
                for at in self.seen(context, order):
                    w += say * self.weights[at] / matched[k, order - 2] * order_weights[at, order - 1]
                given += say
            mixed[k] = (1 - w.sum()) * mixed[k] + w @ p_o[k]
        return mixed

    def mix_candidates(self, p: np.ndarray, n: int, order_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        top = np.argsort(-p, kind="stable")[: max(n, 0)].tolist()
        chosen = sorted(token for token in {*top, *self.successors(n)} if token < len(p) and p[token] >= 0)
        ids = np.array(chosen, dtype=np.int64)
        return ids, self.mix(ids, p[ids].astype(float), order_weights)


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

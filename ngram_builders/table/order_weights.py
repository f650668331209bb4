"""How much to trust each n-gram order, fitted on text that the counts have not seen. Knows no models.

A token's probability is a mixture: base + sum over orders n of w[m, n] p_n, where m is the longest order whose
context was seen, and the base (a language model, or every token alike) has the rest of the weight. The weights of
each m are found by expectation maximisation, as in Jelinek and Mercer, "Interpolated estimation of Markov source
parameters from sparse data", 1980. Holding text out costs no counts: each document is predicted by the table
without that document's counts.

Dimensions: T positions in text, O orders from 2 on, M longest order matched, from none (0) and 2 (1) on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, Ints
from ngram_builders.ngrams import HIGHEST_ORDER, count_streams, negate
from ngram_builders.table.format import Columns
from ngram_builders.table.query import open_query
from ngram_builders.table.writer import build_columns

# Row: the longest order whose context was seen; column: the order that the weight is for; both from order 2 on.
OrderWeights = tuple[tuple[float, ...], ...]

_WIDTH = HIGHEST_ORDER - 1  # tokens of the longest context, and orders
MAX_POSITIONS = 20_000  # to fit weights on; more changes the third digit
_MIN_POSITIONS = 1000  # for a perplexity; with fewer it is chance
_ROUNDS = 40
_PRIOR = 50  # positions that count for the initial weights: what is seldom seen stays near them
_CHUNK = 64
_TABLE_WEIGHT, _OTHER_WEIGHT = 0.7, 0.1  # of a table and of those beside it, as when they serve


@dataclass(frozen=True, slots=True)
class Observations:
    """The probabilities that the orders gave to the tokens that really came next."""

    p: F64  # [T, O]
    matched: F64  # [T, O] above 0 where the context was seen


def _longest_match(matched: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.intp]:
    """[T, O] -> [T]: 0 where no context was seen, else the index of the longest order, from 1."""
    return np.asarray(((matched > 0) * np.arange(1, matched.shape[1] + 1)).max(axis=1))


def observe_stream(
    pools: Sequence[Sequence[Columns]],
    shares: Sequence[float],
    stream: Ints,
    start: int = 1,
    release: Callable[[], object] = lambda: None,
) -> Observations:
    """Query pools for each token of a stream from `start` on; `release` is called now and then."""
    query = open_query(pools, shares)
    history = np.concatenate((np.full(_WIDTH, -1), stream))
    contexts = np.lib.stride_tricks.sliding_window_view(history, _WIDTH)[start : len(stream)]  # [T, WIDTH]
    parts = [Observations(np.empty((0, _WIDTH)), np.empty((0, _WIDTH)))]
    for at in range(0, len(contexts), _CHUNK):
        tokens, index = np.unique(stream[start + at : start + at + _CHUNK], return_inverse=True)
        p, matched = query.probabilities(contexts[at : at + _CHUNK], tokens)  # p [chunk, O, tokens]
        parts.append(Observations(p[np.arange(len(index)), :, index], matched))
        release()
    return _join_observations(parts)


def _join_observations(parts: Sequence[Observations]) -> Observations:
    """Observations of several documents as one."""
    return Observations(
        np.concatenate([part.p for part in parts]), np.concatenate([part.matched for part in parts])
    )


def fit_order_weights(observations: Observations, base: F64 | float) -> OrderWeights:
    """Return the weights [M, O] that make the observed tokens likeliest; base [T] is what stands beside them."""
    components = _with_base(observations, base)  # [T, 1 + O]
    longest = _longest_match(observations.matched)
    weights = _equal_weights()
    for m in range(1, _WIDTH + 1):
        rows = components[longest == m]
        prior = _PRIOR * weights[m]
        for _ in range(_ROUNDS):
            shares = rows * weights[m]
            total = shares.sum(axis=1, keepdims=True)
            shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
            weights[m] = (shares.sum(axis=0) + prior) / (len(rows) + _PRIOR)
            weights[m] /= weights[m].sum()
    return tuple(map(tuple, weights[1:, 1:].tolist()))


def expand_order_weights(rows: Sequence[Sequence[float]]) -> F64:
    """Return weights for every longest match, none (row 0) included; orders beyond the last row are as in it."""
    table: F64 = np.zeros((_WIDTH + 1, _WIDTH))
    for m in range(1, _WIDTH + 1):
        row = rows[min(m, len(rows)) - 1]
        table[m, : len(row)] = row
    return table


def _equal_weights() -> F64:
    """The same weight for the base and each order up to the longest matched. [M, 1 + O]"""
    components = np.tri(_WIDTH + 1)
    return np.asarray(components / components.sum(axis=1, keepdims=True))


def _with_base_weights(weights: OrderWeights) -> F64:
    """Weights with the base's in front, and a row for no context matched. [M, 1 + O]"""
    table = np.concatenate((np.zeros((1, _WIDTH)), np.array(weights)))
    return np.concatenate((1 - table.sum(axis=1, keepdims=True), table), axis=1)


def _with_base(observations: Observations, base: F64 | float) -> F64:
    """The base and the orders side by side. [T, 1 + O]"""
    first = np.broadcast_to(base, len(observations.p))
    return np.concatenate((first[:, None], observations.p), axis=1)


def mix_probabilities(observations: Observations, base: F64 | float, weights: OrderWeights) -> F64:
    """Return the mixture's probability of each observed token. [T]"""
    rows = _with_base_weights(weights)[_longest_match(observations.matched)]
    return np.asarray((_with_base(observations, base) * rows).sum(axis=1))


def perplexity(p: F64) -> float:
    """The number of equally likely tokens that would be as hard to predict."""
    return float(np.exp(-np.log(np.maximum(p, 1e-12)).mean())) if len(p) else float("nan")


def measure_perplexity(
    table: Columns,
    streams: Iterable[Ints],
    orders: Sequence[int],
    others: Mapping[str, Columns] | None = None,
    max_positions: int = MAX_POSITIONS,
    release: Callable[[], object] = lambda: None,
) -> dict[str, float]:
    """Return a table's perplexity on documents it was built from, each without its own counts.

    Streams are read until there are enough positions; give them in an order that mixes files, such as by digest.
    others: tables that would serve the same files; the perplexity is measured with and without them. Empty if
    there is too little text. release: gives back memory that the tables take.
    """
    others = dict(others or {})
    weights = {"": _TABLE_WEIGHT} | dict.fromkeys(others, _OTHER_WEIGHT)
    arms = _arms(list(others))
    observed: dict[str, list[Observations]] = {name: [] for name in arms}
    positions = 0
    for stream in streams:
        own = count_streams([stream], orders=orders, vocab_size=table.vocab_size)
        removed = build_columns(negate(own), table.vocab_size)
        pools = {"": [table, removed]} | {name: [columns] for name, columns in others.items()}
        part = stream[: max_positions - positions + 1]
        for name, members in arms.items():
            chosen = [pools[m] for m in members]
            shares = [weights[m] for m in members]
            observed[name].append(observe_stream(chosen, shares, part, release=release))
        positions += max(len(part) - 1, 0)
        if positions >= max_positions:
            break
    if positions < _MIN_POSITIONS:
        return {}
    base = 1 / table.vocab_size
    joined = {name: _join_observations(parts) for name, parts in observed.items()}
    return {
        name: perplexity(mix_probabilities(found, base, fit_order_weights(found, base)))
        for name, found in joined.items()
    }


def _arms(others: Sequence[str]) -> dict[str, list[str]]:
    """Label -> tables that are queried together; "" is the table itself."""
    arms = {"alone": [""]} | {f"{name} only": [name] for name in others}
    return arms | ({f"with {', '.join(others)}": ["", *others]} if others else {})

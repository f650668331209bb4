"""How much to believe each order, fitted on text that the counts have not seen. Knows ids and counts, no models.

What is said of a token is a mixture: base + sum over orders n of w[m, n] p_n, where m is the highest order whose
context was seen, and the base (a language model, or every token alike) has what the weights leave of 1. Those of
each m are found by expectation maximisation, as in Jelinek and Mercer, "Interpolated estimation of Markov source
parameters from sparse data", 1980. Held-out text costs no counts: each document is judged by the table with that
document taken back.

Dimensions: T places in text, O orders from 2 on, M highest order seen, from none (0) and 2 (1) on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, Ints
from ngram_builders.ngrams import HIGHEST_ORDER, count_streams, negate
from ngram_builders.table.format import Columns, OrderWeights
from ngram_builders.table.query import Query
from ngram_builders.table.writer import build_columns

_WIDTH = HIGHEST_ORDER - 1  # tokens of the longest context, and orders
MAX_POSITIONS = 20_000  # places of text that weights are fitted on; more changes the third digit
MIN_POSITIONS = 1000  # places; what fewer say of a table's worth is chance
_ROUNDS = 40
_PRIOR = 50  # places that are taken as told by the weights one starts from: what is seldom seen stays near them
_CHUNK = 64
PERSONAL, OTHER = 0.7, 0.1  # what the table and those beside it weigh, as when they serve


@dataclass(frozen=True, slots=True)
class Observations:
    """What the orders said of the tokens that really came next."""

    p: F64  # [T, O]
    heard: F64  # [T, O] above 0 where the context was seen

    @property
    def rows(self) -> npt.NDArray[np.intp]:
        """[T] the row of weights that each place is mixed by."""
        return longest_match(self.heard)


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a build learned of its table from its own files, each judged without itself."""

    places: int
    perplexity: dict[str, float]  # of which tables -> how many tokens a place is as uncertain as


def longest_match(heard: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.intp]:
    """[T, O] -> [T]: 0 where no context was seen, else the highest order's place plus 1."""
    return np.asarray(((heard > 0) * np.arange(1, heard.shape[1] + 1)).max(axis=1))


def observe_stream(
    pools: Sequence[Sequence[Columns]], shares: Sequence[float], stream: Ints, start: int = 1
) -> Observations:
    """Ask pools of each token of a stream from `start` on."""
    query = Query(pools, shares)
    history = np.concatenate((np.full(_WIDTH, -1), stream))
    contexts = np.lib.stride_tricks.sliding_window_view(history, _WIDTH)[start : len(stream)]  # [T, WIDTH]
    p, heard = [np.empty((0, _WIDTH))], [np.empty((0, _WIDTH))]
    for at in range(0, len(contexts), _CHUNK):
        golds, own = np.unique(stream[start + at : start + at + _CHUNK], return_inverse=True)
        said, known = query.probabilities(contexts[at : at + _CHUNK], golds)  # [chunk, O, golds]
        p.append(said[np.arange(len(own)), :, own])
        heard.append(known)
    return Observations(np.concatenate(p), np.concatenate(heard))


def fit_order_weights(
    observations: Observations, base: F64 | float, start: OrderWeights | None = None
) -> OrderWeights:
    """The weights [M, O] that make the observed tokens likeliest; base [T] is what speaks beside the orders.

    start: weights that serve where nothing is observed; without them all components count alike.
    """
    components = _with_base(observations, base)  # [T, 1 + O]
    rows = observations.rows
    weights = _alike() if start is None else _beside_base(start)
    for m in range(1, _WIDTH + 1):
        mine, prior = components[rows == m], _PRIOR * weights[m]
        for _ in range(_ROUNDS):
            shares = mine * weights[m]
            total = shares.sum(axis=1, keepdims=True)
            shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
            told = shares.sum(axis=0) + prior
            weights[m] = told / told.sum()
    return tuple(map(tuple, weights[1:, 1:].tolist()))


def _alike() -> F64:
    """The same weight for the base and each order up to the highest seen. [M, 1 + O]"""
    among = np.tri(_WIDTH + 1)
    return np.asarray(among / among.sum(axis=1, keepdims=True))


def _beside_base(weights: OrderWeights) -> F64:
    """Weights with what they leave for the base in front, and a row for no context seen. [M, 1 + O]"""
    table = np.concatenate((np.zeros((1, _WIDTH)), np.array(weights)))
    return np.concatenate((1 - table.sum(axis=1, keepdims=True), table), axis=1)


def _with_base(observations: Observations, base: F64 | float) -> F64:
    """The base and the orders side by side. [T, 1 + O]"""
    first = np.broadcast_to(base, len(observations.p))
    return np.concatenate((first[:, None], observations.p), axis=1)


def mix_probabilities(observations: Observations, base: F64 | float, weights: OrderWeights) -> F64:
    """What the mixture says of each observed token. [T]"""
    return np.asarray((_with_base(observations, base) * _beside_base(weights)[observations.rows]).sum(axis=1))


def perplexity(p: F64) -> float:
    """Among how many equally likely tokens one would choose as badly."""
    return float(np.exp(-np.log(np.maximum(p, 1e-12)).mean())) if len(p) else float("nan")


def measure_perplexity(
    table: Columns,
    streams: Iterable[Ints],
    orders: Sequence[int],
    beside: Mapping[str, Columns] | None = None,
    places: int = MAX_POSITIONS,
) -> Assessment | None:
    """What a table is worth on documents it was counted from, each taken back while it is judged.

    No more streams are taken than have so many places. Give them in an order that mixes files, such as by digest.
    beside: other tables that would serve the same files; the perplexity is told with and without them. None if
    there is no text.
    """
    others = dict(beside or {})
    shares = {"": PERSONAL} | dict.fromkeys(others, OTHER)
    arms = _arms_of(list(others))
    seen: dict[str, list[Observations]] = {name: [] for name in arms}
    told = 0
    for stream in streams:
        taken = build_columns(
            negate(count_streams([stream], orders=orders, vocab_size=table.vocab_size)), table.vocab_size
        )
        pools = {"": [table, taken]} | {name: [columns] for name, columns in others.items()}
        for name, members in arms.items():
            part = stream[: places - told + 1]
            seen[name].append(observe_stream([pools[m] for m in members], [shares[m] for m in members], part))
        told += max(len(stream) - 1, 0)
        if told >= places:
            break
    if not told:
        return None
    base = 1 / table.vocab_size
    joined = {name: join_observations(parts) for name, parts in seen.items()}
    return Assessment(
        min(told, places),
        {
            name: perplexity(mix_probabilities(found, base, fit_order_weights(found, base)))
            for name, found in joined.items()
        },
    )


def _arms_of(others: Sequence[str]) -> dict[str, list[str]]:
    """Which tables are asked together, by what that is called; "" is the table itself."""
    arms = {"alone": [""]}
    for name in others:
        arms[f"{name} only"] = [name]
    if others:
        arms[f"with {', '.join(others)}"] = ["", *others]
    return arms


def join_observations(parts: Sequence[Observations]) -> Observations:
    """Observations of several documents as one."""
    return Observations(np.concatenate([one.p for one in parts]), np.concatenate([one.heard for one in parts]))

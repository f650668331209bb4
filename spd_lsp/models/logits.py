"""Logits to probabilities, and the likeliest of many tokens.

Legend: V vocabulary, n likeliest tokens, A tokens asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ngram_builders.arrays import Floats, Ids

TOP_PARTS = 32  # parts into which `top` cuts a vocabulary to find a floor under the largest values


def _nothing() -> Ids:
    return np.empty(0, np.int64)


class Wanted(NamedTuple):
    """What a decoder wants to know of the logits after a pass, where it does not want all of them."""

    n: int  # likeliest tokens
    tau: float = 1.0
    asked: Callable[[], Ids] = (
        _nothing  # others [A], looked up while the pass is computed; unknown ids are left out
    )


class Shortlist(NamedTuple):
    """What was wanted: the n likeliest tokens, largest first, then those asked for, which may be among them."""

    ids: Ids  # [n + A]
    logits: Floats  # [n + A]
    n: int
    total: float  # sum_x exp((logit_x - largest) / tau)

    def probabilities(self, tau: float) -> Floats:
        """The softmax of all logits, of these tokens. [n + A]."""
        return np.asarray(np.exp((self.logits - self.logits[0]) / np.float32(tau)) / np.float32(self.total))


def log_softmax(x: Floats) -> Floats:
    """The logarithm of the softmax along the last axis, in double precision. [..., V] -> [..., V]."""
    shifted = np.asarray(x, dtype=np.float64) - np.max(x, axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def log_z(logits: Floats, tau: float) -> float:
    """The logarithm of sum_x exp(logit_x / tau), summed in the logits' own precision. [V] -> one number."""
    peak = logits.max()
    shifted = logits - peak
    if tau != 1:
        shifted /= tau
    return math.log(np.exp(shifted, out=shifted).sum()) + float(peak) / tau


def top(x: Floats, n: int) -> Ids:
    """The places of the n largest values, largest first, equals by place. [N] -> [n]."""
    n = min(n, len(x))
    floor = x.min() if n == len(x) else _floor_under(x, n)
    # All that reach the floor take part: how a partition cuts between equals is not defined.
    places = np.flatnonzero(x >= floor)
    return places[np.argsort(-x[places], kind="stable")][:n].astype(np.int64, copy=False)


def _floor_under(x: Floats, n: int) -> Any:
    """A value that at least n of x reach, and not many more: the n-th largest of the parts' maxima.

    Of a vocabulary this is found several times faster than by partitioning all of it.
    """
    parts = len(x) // TOP_PARTS
    if parts < 4 * n:
        return np.partition(x, len(x) - n)[len(x) - n]
    maxima = x[: parts * TOP_PARTS].reshape(TOP_PARTS, parts).max(axis=0)  # [parts]
    return np.partition(maxima, parts - n)[parts - n]


def top_allowed(logits: Floats, n: int, allowed: Ids | None) -> Ids:
    """The n likeliest tokens, among the allowed ones if not all are. [V] -> [n]."""
    return top(logits, n) if allowed is None else allowed[top(logits[allowed], n)]

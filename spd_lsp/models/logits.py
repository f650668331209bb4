"""Logits to probabilities, and the likeliest of many tokens. V vocabulary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats, Ids

TOP_PARTS = 32  # parts into which `top` cuts a vocabulary to find a floor under the largest values


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

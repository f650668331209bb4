"""From logits to candidate tokens, and the paper's formula, where n-grams choose among the model's top tokens.

In: logits and the histories of drafts. Out: tokens and their log p_f.

Legend: K histories, R the model's candidate tokens, C those of model and n-grams, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.settings import Settings

Histories = Sequence[Sequence[int]] | Ids

LOG_DELTA = -200.0  # delta, the penalty of a draft whose n-grams know none of the candidates
# A floor under p_ngram^alpha, below any sum of penalties: tokens that the paper excludes come last instead, so
# that there are always k drafts, each with a finite score.
LOG_FLOOR = -1e6
TINY = 1e-300  # below any probability of interest; its logarithm is finite
TOP_PARTS = 32  # parts into which `top` cuts a vocabulary to find a floor under the largest values


class Interpolation(Protocol):
    """Next-token probabilities from n-gram counts. A history is the last ids of a draft and the text before it."""

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """Return p_ngram of each of R candidates after each of K histories: [K, R], 0 where nothing is known."""

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """Return the n likeliest tokens by p [V] and n likely successors of each history: ids [C].

        And their p mixed with the counts of each history: [K, C]. Tokens whose p is negative are not allowed.
        """


def top_candidates(
    logits: Floats, settings: Settings, allowed: Ids | None = None, *, is_first: bool = False
) -> tuple[Ids, Floats]:
    """Return the model's top R tokens, among those allowed, and their log p_theta: [R], [R].

    Renormalised over the top R of all; for the first token, which is given to be one of those allowed, over these.
    """
    candidates = top_allowed(logits, settings.candidates, allowed)
    support = candidates if allowed is None or is_first else top(logits, settings.candidates)
    scaled = logits[support].astype(np.float64) / settings.temperature
    return candidates, logits[candidates] / settings.temperature - np.logaddexp.reduce(scaled)


def fuse(logp: Floats, p_ngram: Floats, alpha: float) -> Floats:
    """p_f = p_theta^(1 - alpha) * p_ngram^alpha over the tokens both know (section 3.2). -> [K, R].

    A draft whose n-grams know no candidate gets delta * p_theta^(1 - alpha). Where they know some, the paper
    excludes the others; here these come last: their p_ngram^alpha is the floor, e^LOG_FLOOR.
    Example: alpha 0.5, p_theta (.5, .5), p_ngram (.5, 0) -> p_f (.5, all but 0).
    """
    known = p_ngram > 0  # [K, R]
    penalty = np.where(known.any(axis=1, keepdims=True), LOG_FLOOR, LOG_DELTA)  # [K, 1]
    log_ngram = np.log(p_ngram, out=np.zeros_like(p_ngram), where=known)
    return np.asarray((1 - alpha) * logp + np.where(known, alpha * log_ngram, penalty))


def log_softmax(x: Floats) -> Floats:
    """Return the logarithm of the softmax along the last axis, in double precision. [..., V] -> [..., V]."""
    shifted = np.asarray(x, dtype=np.float64) - np.max(x, axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def log_z(logits: Floats, tau: float) -> float:
    """Return the logarithm of sum_x exp(logit_x / tau), summed in the logits' own precision. [V] -> one number."""
    peak = logits.max()
    shifted = logits - peak
    if tau != 1:
        shifted /= tau
    return math.log(np.exp(shifted, out=shifted).sum()) + float(peak) / tau


def top(x: Floats, n: int) -> Ids:
    """Return the places of the n largest values, largest first, equals by place. [N] -> [n]."""
    n = min(n, len(x))
    floor = x.min() if n == len(x) else _floor_under(x, n)
    # All that reach the floor take part: how a partition cuts between equals is not defined.
    places = np.flatnonzero(x >= floor)
    return places[np.argsort(-x[places], kind="stable")][:n].astype(np.int64, copy=False)


def _floor_under(x: Floats, n: int) -> Any:
    """Return a value that at least n of x reach, and not many more: the n-th largest of the parts' maxima.

    This is several times faster than partitioning a whole vocabulary.
    """
    parts = len(x) // TOP_PARTS
    if parts < 4 * n:
        return np.partition(x, len(x) - n)[len(x) - n]
    maxima = x[: parts * TOP_PARTS].reshape(TOP_PARTS, parts).max(axis=0)  # [parts]
    return np.partition(maxima, parts - n)[parts - n]


def top_allowed(logits: Floats, n: int, allowed: Ids | None) -> Ids:
    """Return the n likeliest tokens, among the allowed ones if not all are. [V] -> [n]."""
    return top(logits, n) if allowed is None else allowed[top(logits[allowed], n)]

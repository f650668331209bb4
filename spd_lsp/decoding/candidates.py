"""Combine the model and the n-grams by the paper's formula, where n-grams choose among the model's top tokens.

And score the same tokens as `superposed.score_logits` where a device selects the few logits that are needed. In:
logits and the histories of drafts. Out: tokens and their log p_f.

Legend: K histories, R the model's candidate tokens, A those of the n-grams, C of both, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.logits import log_softmax, top, top_allowed
from spd_lsp.models.topk import TopK
from spd_lsp.settings import Settings

Histories = Sequence[Sequence[int]] | Ids

LOG_DELTA = -200.0  # delta, the penalty of a draft whose n-grams know none of the candidates
# A floor under p_ngram^alpha, below any sum of penalties: tokens that the paper excludes come last instead, so
# that there are always k drafts, each with a finite score.
LOG_FLOOR = -1e6
TINY = 1e-300  # below any probability of interest; its logarithm is finite
_NO_IDS: Ids = np.empty(0, np.int64)


class Interpolation(Protocol):
    """Next-token probabilities from n-gram counts. A history is the last ids of a draft and the text before it."""

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """Return p_ngram of each of R candidates after each of K histories: [K, R], 0 where nothing is known."""

    def mix(self, histories: Histories, candidates: Ids, p: Floats) -> Floats:
        """Mix probabilities p [R] or [K, R] with the counts of each history: [K, R]."""

    def successors(self, histories: Histories, n: int) -> Ids:
        """Return up to n likely next tokens of each history."""

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """Return the n likeliest tokens by p [V] and all `successors`, and `mix` of them: [C], [K, C].

        Tokens whose p is negative are not allowed.
        """


def ngram_proposals(histories: Histories, interpolation: Interpolation | None, settings: Settings) -> Ids:
    """Return the tokens that n-grams propose, whose logits `score_selected` needs too. -> [A]."""
    if interpolation is None or settings.interpolation != "linear":
        return _NO_IDS
    return interpolation.successors(histories, settings.candidates)


def score_selected(
    top_k: TopK, extra_ids: Ids, histories: Histories, interpolation: Interpolation | None, settings: Settings
) -> tuple[Ids, Floats]:
    """Score what `superposed.score_logits` does, given only the top R logits and those of `ngram_proposals`."""
    tau = settings.temperature
    if interpolation is None or settings.interpolation != "linear":
        logp = log_softmax(top_k.logits / tau)
        return fuse_with_ngrams(top_k.ids, logp, histories, interpolation, settings)
    candidates, logits = _merge_logits((top_k.ids, top_k.logits), (extra_ids, top_k.extra_logits))  # [C] twice
    p = np.exp(logits / tau - top_k.log_z)
    return candidates, np.log(np.maximum(interpolation.mix(histories, candidates, p), TINY))


def fuse_with_ngrams(
    candidates: Ids, logp: Floats, histories: Histories, interpolation: Interpolation | None, settings: Settings
) -> tuple[Ids, Floats]:
    """The paper's formula: n-grams choose among the model's top tokens. [R] twice -> [R], and [K, R] or [1, R]."""
    if interpolation is None:
        return candidates, logp[None]
    return candidates, fuse(logp, interpolation(histories, candidates), settings.alpha)


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


def _merge_logits(*parts: tuple[Ids, Floats]) -> tuple[Ids, Floats]:
    """Merge ids and their logits: sorted, without duplicates and tokens that the model does not have."""
    ids, logits = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    known = logits > -np.inf
    unique, first = np.unique(ids[known], return_index=True)
    return unique, logits[known][first]

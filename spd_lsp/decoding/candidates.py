"""Combine the model and the n-grams by the paper's formula, where n-grams choose among the model's top tokens.

In: logits and the histories of drafts. Out: tokens and their log p_f.

Legend: K histories, R the model's candidate tokens, C those of model and n-grams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.logits import Shortlist, top, top_allowed
from spd_lsp.settings import Settings

Histories = Sequence[Sequence[int]] | Ids

LOG_DELTA = -200.0  # delta, the penalty of a draft whose n-grams know none of the candidates
# A floor under p_ngram^alpha, below any sum of penalties: tokens that the paper excludes come last instead, so
# that there are always k drafts, each with a finite score.
LOG_FLOOR = -1e6
TINY = 1e-300  # below any probability of interest; its logarithm is finite


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


def top_candidates(
    logits: Floats | Shortlist, settings: Settings, allowed: Ids | None = None, *, is_first: bool = False
) -> tuple[Ids, Floats]:
    """Return the model's top R tokens, among those allowed, and their log p_theta: [R], [R].

    Renormalised over the top R of all; for the first token, which is given to be one of those allowed, over these.
    """
    if isinstance(logits, Shortlist):  # any token may follow
        scaled = logits.logits[: logits.n].astype(np.float64) / settings.temperature
        return logits.ids[: logits.n], logits.logits[: logits.n] / settings.temperature - np.logaddexp.reduce(
            scaled
        )
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

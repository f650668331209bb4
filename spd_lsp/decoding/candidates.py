"""Which tokens may follow each draft, and how likely each is: the model's word and the n-grams' as one, p_f.

Two ways: the paper's, where n-grams choose among the model's top tokens, and one in which both sides propose and
neither has a veto. Comes in: logits and the histories of drafts. Goes out: tokens and their log p_f.

Legend: K histories, R the model's candidate tokens, A those of the n-grams, C of both, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.logits import log_softmax, log_z, mask_disallowed, softmax, top, top_allowed
from spd_lsp.models.topk import TopK
from spd_lsp.settings import Settings

Histories = Sequence[Sequence[int]] | Ids

LOG_DELTA = -200.0  # delta, what a draft pays for a step in which no candidate is known to its n-grams
# A floor under p_ngram^alpha, below all that drafts can pay: what the paper leaves out comes last instead, so that
# there are always k drafts, each with a finite score.
LOG_FLOOR = -1e6
TINY = 1e-300  # likewise below any probability of interest; its logarithm is finite
_NO_IDS: Ids = np.empty(0, np.int64)


class Interpolation(Protocol):
    """What n-gram counts say of the next token. A history is the last ids of a draft and the text before it."""

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """p_ngram of each of R candidates after each of K histories: [K, R], 0 where nothing is known."""

    def mix(self, histories: Histories, candidates: Ids, p: Floats) -> Floats:
        """Probabilities p [R] or [K, R], corrected by what is known of each history: [K, R]."""

    def successors(self, histories: Histories, n: int) -> Ids:
        """Up to n likely next tokens of each history."""

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """The n likeliest tokens by p [V] and `successors` of each history, and `nest` of them: [C], [K, C].

        Where p is below 0 a token may not follow.
        """


def score_logits(
    logits: Floats, before: Histories, interpolation: Interpolation | None, settings: Settings, allowed: Ids | None
) -> tuple[Ids, Floats]:
    """Candidates from all logits [V]. -> ids [C] and log p_f [K, C], or [1, C] without n-grams."""
    if interpolation is not None and settings.interpolation == "linear":
        return mix_candidates(logits, before, interpolation, settings, allowed)
    return _chosen_by_ngrams(*top_candidates(logits, settings), before, interpolation, settings)


def ngram_proposals(before: Histories, interpolation: Interpolation | None, settings: Settings) -> Ids:
    """Tokens whose logits `of_few` wants beside the likeliest: those that n-grams propose. -> [A]."""
    if interpolation is None or settings.interpolation != "linear":
        return _NO_IDS
    return interpolation.successors(before, settings.candidates)


def score_selected(
    top_k: TopK, extra_ids: Ids, before: Histories, interpolation: Interpolation | None, settings: Settings
) -> tuple[Ids, Floats]:
    """The same candidates from logits selected on a device: the top R and those of `ngram_proposals`."""
    tau = settings.temperature
    if interpolation is None or settings.interpolation != "linear":
        logp = log_softmax(top_k.logits / tau)
        return _chosen_by_ngrams(top_k.ids, logp, before, interpolation, settings)
    candidates, logits = _each_once((top_k.ids, top_k.logits), (extra_ids, top_k.extra_logits))  # [C] twice
    p = np.exp(logits / tau - top_k.log_z)
    return candidates, np.log(np.maximum(interpolation.mix(before, candidates, p), TINY))


def _chosen_by_ngrams(
    candidates: Ids, logp: Floats, before: Histories, interpolation: Interpolation | None, settings: Settings
) -> tuple[Ids, Floats]:
    """The paper: n-grams choose among the model's top tokens. [R] twice -> [R], and [K, R] or [1, R]."""
    if interpolation is None:
        return candidates, logp[None]
    return candidates, fuse(logp, interpolation(before, candidates), settings.alpha)


def top_candidates(logits: Floats, settings: Settings) -> tuple[Ids, Floats]:
    """The model's top R tokens and the logarithm of p_theta, renormalised over them: [R], [R]."""
    candidates = top(logits, settings.candidates)
    return candidates, log_softmax(logits[candidates] / settings.temperature)


def fuse(logp: Floats, p_ngram: Floats, alpha: float) -> Floats:
    """p_f = p_theta^(1 - alpha) * p_ngram^alpha over the tokens both know (section 3.2). -> [K, R].

    A draft whose n-grams know no candidate takes delta * p_theta^(1 - alpha). What the paper leaves out, a token
    not known beside known ones, comes after all others: its p_ngram^alpha is the floor, e^LOG_FLOOR.
    Example: alpha 0.5, p_theta (.5, .5), p_ngram (.5, 0) -> p_f (.5, all but 0).
    """
    known = p_ngram > 0  # [K, R]
    penalty = np.where(known.any(axis=1, keepdims=True), LOG_FLOOR, LOG_DELTA)  # [K, 1]
    log_ngram = np.log(p_ngram, out=np.zeros_like(p_ngram), where=known)
    return np.asarray((1 - alpha) * logp + np.where(known, alpha * log_ngram, penalty))


def mix_candidates(
    logits: Floats,
    histories: Histories,
    interpolation: Interpolation,
    settings: Settings,
    allowed: Ids | None,
) -> tuple[Ids, Floats]:
    """Beyond the paper: candidates of the model and of the n-grams, mixed linearly, so that neither has a veto.

    The paper lets n-grams choose among the model's top tokens only; a small model has seldom seen the names that a
    repository uses. Logits [V] of all drafts, or [K, V] of each its own. -> ids [C], log p_f [K, C].
    """
    tau = settings.temperature
    if logits.ndim == 1:
        p = softmax(logits, tau)  # [V]
        candidates, p_f = interpolation.mix_top(
            histories, p if allowed is None else mask_disallowed(p, allowed), settings.candidates
        )
        if allowed is not None:
            p_f = condition_on_allowed(p_f, p[allowed].sum() - p[candidates].sum())
        return candidates, np.log(np.maximum(p_f, TINY))
    theirs = interpolation.successors(histories, settings.candidates)
    theirs = theirs[theirs < logits.shape[1]]  # a table may name tokens that the model does not have
    if allowed is not None:
        theirs = theirs[np.isin(theirs, allowed)]
    own = [top_allowed(row, settings.candidates, allowed) for row in logits]
    candidates = _distinct([*own, theirs])
    z = np.array([[log_z(row, tau)] for row in logits])  # [K, 1], in double precision as all that follows
    p = np.exp(logits[:, candidates] / tau - z)  # [K, C]
    p_f = interpolation.mix(histories, candidates, p)
    if allowed is not None:
        all_allowed = np.exp([[log_z(row[allowed], tau)] for row in logits] - z)  # [K, 1]
        p_f = condition_on_allowed(p_f, all_allowed - p.sum(axis=1, keepdims=True))
    return candidates, np.log(np.maximum(p_f, TINY))


def condition_on_allowed(p_f: Floats, others: Floats) -> Floats:
    """Probabilities given that some allowed token follows: a person has typed what all of them begin with.

    `others`: p of the allowed tokens that are no candidates, n-grams left aside, [K, 1] or one. [K, C] -> [K, C].
    """
    total = p_f.sum(axis=1, keepdims=True) + np.maximum(others, 0)
    return np.asarray(p_f / np.maximum(total, TINY))


def _each_once(*parts: tuple[Ids, Floats]) -> tuple[Ids, Floats]:
    """Ids with their logits, sorted, each once; those that the model does not have are left out."""
    ids, logits = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    known = logits > -np.inf
    found, first = np.unique(ids[known], return_index=True)
    return found, logits[known][first]


def _distinct(parts: Sequence[Ids]) -> Ids:
    """All ids of several arrays once each, sorted: `np.unique` without its overhead."""
    ids = np.sort(np.concatenate(parts))
    return ids[np.concatenate(([True], ids[1:] != ids[:-1]))]

"""Superposed Decoding: the ids of a prompt in, k drafts out, one forward pass per token whatever k is.

The paper: Shen et al., "Superposed Decoding: Multiple Generations from a Single Autoregressive Inference
Pass", NeurIPS 2024; sections are cited where they are computed.
Knows ids and probabilities only: no text, no tokenizer, no tensor library but numpy.

Legend: K live drafts, R candidate tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spd_lsp.settings import Settings

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]

LOG_DELTA = -200.0  # delta, what a draft pays for a step in which no candidate is known to its n-grams


class Model(Protocol):
    """A language model with a cache, which gives the next token's logits."""

    def prefill(self, ids: Sequence[int], check: Callable[[], None]) -> Floats:
        """Read this prompt, from the first token on; `check` may raise to stop in between. -> [V]."""

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position: the embeddings of `ids`, mixed by `weights`, which sum to 1. -> [V]."""

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Read one more position in each of N rows, in one pass; each row is what `step` takes. -> [N, V].

        Row i goes on from row parents[i] of the last call; all from 0 after a prefill, whose one row they share.
        """


class Interpolation(Protocol):
    """What n-gram counts say of the next token."""

    def __call__(self, histories: Sequence[Sequence[int]], candidates: Ids) -> Floats:
        """p_ngram of each of R candidates after each of K histories: [K, R], 0 where nothing is known."""

    def nest(self, histories: Sequence[Sequence[int]], candidates: Ids, p: Floats) -> Floats:
        """Probabilities p [R] or [K, R], corrected by what is known of each history: [K, R]."""

    def successors(self, histories: Sequence[Sequence[int]], n: int) -> Ids:
        """Up to n likely next tokens of each history."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Token ids after the prompt, with the sum of their log p_f."""

    ids: tuple[int, ...]
    score: float

    @property
    def mean_score(self) -> float:
        """The length-normalised score, by which drafts of different lengths are compared."""
        return self.score / len(self.ids)


@dataclass(frozen=True, slots=True)
class Drafts:
    """The best k drafts, best first, and what they took."""

    best: list[Draft]
    passes: int  # forward passes, the prompt's counted as one
    longest: int  # tokens of the longest draft written, be it among the best or not
    rows: int = 0  # positions that the model read after the prompt: one a pass, or one for each row of a batch
    spare: list[Draft] = field(default_factory=list)  # finished beyond k, should some of the best read the same


@dataclass(frozen=True, slots=True)
class Start:
    """Where drafts begin, and when one is finished."""

    prompt: Sequence[int]
    stop: Callable[[tuple[int, ...]], bool]  # whether a draft is finished, its last id included
    history: Sequence[int] = ()  # the text before the drafts, as n-grams see it
    interpolation: Interpolation | None = None
    allowed: Ids | None = None  # ids a draft may begin with, or None for any

    def after(self, ids: tuple[int, ...]) -> Start:
        """The same with some of the draft written already."""
        return Start(
            [*self.prompt, *ids], lambda more: self.stop((*ids, *more)), [*self.history, *ids], self.interpolation
        )


def superpose(model: Model, start: Start, settings: Settings, check: Callable[[], None] = lambda: None) -> Drafts:
    """Write k drafts that go on from a prompt. `check` is called before each pass; what it raises ends it."""
    k = settings.drafts
    check()
    live, finished = select(first_step(model.prefill(start.prompt, check), start, settings), k, start.stop)
    passes = 1
    while passes < settings.max_tokens and not settled(live, finished, k):
        check()
        if settings.reset_every and passes % settings.reset_every == 0:
            live = live[:1]  # section 5.3: one draft goes on alone, from a cache that is its own again
            logits = model.prefill([*start.prompt, *live[0].ids], check)
        else:
            logits = model.step([draft.ids[-1] for draft in live], superposition(live))
        passes += 1
        live, ended = select(next_step(logits, live, start, settings), k, start.stop)
        finished = by_mean_score([*finished, *ended])
    best = by_mean_score([*finished[:k], *live])[:k]
    longest = max(len(draft.ids) for draft in [*finished, *live])
    return Drafts(best, passes, longest, rows=passes - 1, spare=finished[k:])


def first_step(logits: Floats, start: Start, settings: Settings) -> list[Draft]:
    """Draft i is the i-th most likely token after the prompt; the paper asks no n-grams yet (section 3.1)."""
    if start.interpolation is not None and settings.interpolation == "nested":
        return next_step(logits, [Draft((), 0.0)], start, settings)
    ids = np.arange(len(logits)) if start.allowed is None else start.allowed  # [R]
    logp = log_softmax(logits[ids] / settings.temperature)  # [R]
    # Twice k, so that k are left to go on if some are finished at once.
    return [Draft((int(ids[i]),), float(logp[i])) for i in top(logp, 2 * settings.drafts)]


def superposition(live: Sequence[Draft]) -> Floats:
    """gamma_i = p_i / sum_j p_j, what draft i's last token weighs in x~ = sum_i gamma_i z_i (section 3.1)."""
    scores = np.array([draft.score for draft in live])  # [K]
    return np.exp(log_softmax(scores))


def next_step(logits: Floats, live: Sequence[Draft], start: Start, settings: Settings) -> list[Draft]:
    """The K x R ways to go on, best first: each draft's score times p_f of each candidate."""
    histories = [[*start.history, *draft.ids] for draft in live]
    if start.interpolation is None:
        candidates, logp = likeliest(logits, settings)
        logp_f = np.broadcast_to(logp, (len(live), len(logp)))
    elif settings.interpolation == "paper":
        candidates, logp = likeliest(logits, settings)
        logp_f = fuse(logp, start.interpolation(histories, candidates), settings.alpha)
    else:
        allowed = None if live[0].ids else start.allowed
        candidates, logp_f = both_sides(logits, histories, start.interpolation, settings, allowed)
    scores = np.array([draft.score for draft in live])[:, None] + logp_f  # [K, R]
    order = np.argsort(-scores, axis=None, kind="stable")  # [K * R], equals by draft, then by candidate
    return [
        Draft((*live[at // len(candidates)].ids, int(candidates[at % len(candidates)])), float(scores.flat[at]))
        for at in order.tolist()
        if np.isfinite(scores.flat[at])
    ]


def likeliest(logits: Floats, settings: Settings) -> tuple[Ids, Floats]:
    """The model's top R tokens and the logarithm of p_theta, renormalised over them: [R], [R]."""
    candidates = top(logits, settings.candidates)
    return candidates, log_softmax(logits[candidates] / settings.temperature)


def fuse(logp: Floats, p_ngram: Floats, alpha: float) -> Floats:
    """p_f = p_theta^(1 - alpha) * p_ngram^alpha over the tokens both know (section 3.2). -> [K, R].

    A draft whose n-grams know no candidate takes delta * p_theta^(1 - alpha). What is left out gets -inf.
    Example: alpha 0.5, p_theta (.5, .5), p_ngram (.5, 0) -> p_f (.5, 0).
    """
    known = p_ngram > 0  # [K, R]
    with np.errstate(divide="ignore"):
        both = (1 - alpha) * logp + np.where(known, alpha * np.log(p_ngram), -np.inf)
    alone = (1 - alpha) * logp + LOG_DELTA
    return np.where(known.any(axis=1, keepdims=True), both, alone)


def both_sides(
    logits: Floats,
    histories: Sequence[Sequence[int]],
    interpolation: Interpolation,
    settings: Settings,
    allowed: Ids | None,
) -> tuple[Ids, Floats]:
    """Beyond the paper: candidates of the model and of the n-grams, mixed linearly, so that neither has a veto.

    The paper lets n-grams choose among the model's top tokens only; a small model has seldom seen the names that a
    repository uses. Logits [V] of all drafts, or [K, V] of each its own. -> ids [C], log p_f [K, C].
    """
    rows = np.atleast_2d(logits) / settings.temperature  # [1 or K, V]
    theirs = interpolation.successors(histories, settings.candidates)
    if allowed is None:
        own = [top(row, settings.candidates) for row in rows]
    else:
        own = [allowed[top(row[allowed], settings.candidates)] for row in rows]
        theirs = np.intersect1d(theirs, allowed)
    candidates = np.unique(np.concatenate([*own, theirs]))
    p = np.stack([np.exp(log_softmax(row)[candidates]) for row in rows])  # [1 or K, C]
    with np.errstate(divide="ignore"):  # a probability too small for a float is none
        return candidates, np.log(interpolation.nest(histories, candidates, p))


def select(
    options: Sequence[Draft], k: int, stop: Callable[[tuple[int, ...]], bool]
) -> tuple[list[Draft], list[Draft]]:
    """From options, best first: the best k that go on, and the finished ones met on the way to them."""
    live: list[Draft] = []
    finished: list[Draft] = []
    for option in options:
        if len(live) == k:
            break
        (finished if stop(option.ids) else live).append(option)
    return live, finished


def settled(live: Sequence[Draft], finished: Sequence[Draft], k: int) -> bool:
    """Whether to stop: none is live, or k are finished (best first) and each beats every live one."""
    if not live:
        return True
    return len(finished) >= k and max(draft.mean_score for draft in live) <= finished[k - 1].mean_score


def by_mean_score(drafts: Sequence[Draft]) -> list[Draft]:
    """Best first by length-normalised score; equals keep their order."""
    return sorted(drafts, key=lambda draft: -draft.mean_score)


def log_softmax(x: Floats) -> Floats:
    """The logarithm of the softmax, without overflow. [N] -> [N]."""
    shifted = np.asarray(x, dtype=np.float64) - np.max(x)
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def top(x: Floats, n: int) -> Ids:
    """The places of the n largest values, largest first, equals by place. [N] -> [n]."""
    n = min(n, len(x))
    # All that equal the n-th largest take part: how a partition cuts between equals is not defined.
    floor = np.partition(x, len(x) - n)[len(x) - n]
    places = np.flatnonzero(x >= floor)
    return places[np.argsort(-x[places], kind="stable")][:n].astype(np.int64)

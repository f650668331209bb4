"""Superposed Decoding: the ids of a prompt in, k drafts out, one forward pass per token whatever k is.

The paper: Shen et al., "Superposed Decoding: Multiple Generations from a Single Autoregressive Inference
Pass", NeurIPS 2024; sections are cited where they are computed.
Knows ids and probabilities only: no text, no tokenizer, no tensor library but numpy.

Legend: K live drafts, R the model's candidate tokens, C candidates of model and n-grams, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from spd_lsp.engine.likeliest import Likeliest
from spd_lsp.logits import barred, log_softmax, log_z, softmax, top, top_allowed
from spd_lsp.ranking import Draft as Draft
from spd_lsp.ranking import Reads, ranked, settled
from spd_lsp.settings import Settings

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]
Histories = Sequence[Sequence[int]] | Ids

LOG_DELTA = -200.0  # delta, what a draft pays for a step in which no candidate is known to its n-grams
# A floor under p_ngram^alpha, below all that drafts can pay: what the paper leaves out comes last instead, so that
# there are always k drafts, each with a finite score.
LOG_FLOOR = -1e6
LEAST = 1e-300  # likewise below any probability of interest; its logarithm is finite
FEW = 4  # for each draft: options that are looked at even when enough are found
REACH = 8  # ids of a history that n-grams are asked with, the longest context that tables hold
NOTHING = (-1,) * REACH  # stands before a text: no id
NO_IDS: Ids = np.empty(0, np.int64)
SEVERAL = 40  # options that are made ready together


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

    def read_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """log p of each token of each draft after the last prefill's prompt, all in one pass."""


class Selecting(Model, Protocol):
    """A model that finds the few logits that choosing needs where all of them are, beside a GPU's memory."""

    selects: bool  # whether that is quicker than `step`

    def step_likeliest(
        self, ids: Sequence[int], weights: Floats, count: int, asked: Ids, temperature: float = 1.0
    ) -> Likeliest:
        """As `step`, but of the logits only the `count` largest and those of asked tokens."""


class Interpolation(Protocol):
    """What n-gram counts say of the next token. A history is the last ids of a draft and the text before it."""

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """p_ngram of each of R candidates after each of K histories: [K, R], 0 where nothing is known."""

    def nest(self, histories: Histories, candidates: Ids, p: Floats) -> Floats:
        """Probabilities p [R] or [K, R], corrected by what is known of each history: [K, R]."""

    def successors(self, histories: Histories, n: int) -> Ids:
        """Up to n likely next tokens of each history."""

    def nested(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """The n likeliest tokens by p [V] and `successors` of each history, and `nest` of them: [C], [K, C].

        Where p is below 0 a token may not follow.
        """


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
    reads: Reads = tuple  # what a person sees of a draft: among finished ones those that read the same are one

    def after(self, ids: tuple[int, ...]) -> Start:
        """The same with some of the draft written already."""
        return Start(
            [*self.prompt, *ids],
            lambda more: self.stop((*ids, *more)),
            [*self.history, *ids],
            self.interpolation,
            reads=lambda more: self.reads((*ids, *more)),
        )


def superpose(
    model: Model, start: Start, settings: Settings, check: Callable[[], None] = lambda: None, width: int = 0
) -> Drafts:
    """Write k drafts that go on from a prompt. `check` is called before each pass; what it raises ends it.

    `width` drafts are live, k if it is 0: more of them take no more passes, and end in more `spare` drafts.
    """
    k, by = settings.drafts, settings.ranking
    check()
    logits = model.prefill(start.prompt, check)
    live, ended = select(first_step(logits, start, settings, width), start, settings, width)
    finished = ranked(ended, by, start.reads)
    passes = 1
    while passes < settings.max_tokens and not settled(live, finished, k, by):
        check()
        if settings.reset_every and passes % settings.reset_every == 0:
            live = live[:1]  # section 5.3: one draft goes on alone, from a cache that is its own again
            options = next_step(model.prefill([*start.prompt, *live[0].ids], check), live, start, settings)
        else:
            options = superposed_step(model, live, start, settings)
        passes += 1
        live, ended = select(options, start, settings, width)
        finished = ranked([*finished, *ended], by, start.reads)
    best = ranked([*finished[:k], *live], by, start.reads)[:k]
    longest = max(len(draft.ids) for draft in [*finished, *live])
    return Drafts(best, passes, longest, rows=passes - 1, spare=finished[k:])


def first_step(logits: Floats, start: Start, settings: Settings, width: int = 0) -> Iterator[Draft]:
    """Draft i is the i-th most likely token after the prompt; the paper asks no n-grams yet (section 3.1)."""
    if start.interpolation is not None and settings.interpolation == "nested":
        return next_step(logits, [Draft((), 0.0)], start, settings)
    # Twice as many as go on, if some are finished at once.
    ids = top_allowed(logits, 2 * (width or settings.drafts), start.allowed)  # [2k]
    among = logits if start.allowed is None else logits[start.allowed]
    logp = logits[ids].astype(np.float64) / settings.temperature - log_z(among, settings.temperature)
    return best_first([Draft((), 0.0)], ids, logp[None])


def superposed_step(model: Model, live: Sequence[Draft], start: Start, settings: Settings) -> Iterator[Draft]:
    """One pass over the last tokens of all drafts, superposed; the ways to go on, best first."""
    ids, gamma = [draft.ids[-1] for draft in live], superposition(live)
    if getattr(model, "selects", False):
        return step_of_few(cast(Selecting, model), (ids, gamma), live, start, settings)
    return next_step(model.step(ids, gamma), live, start, settings)


def superposition(live: Sequence[Draft]) -> Floats:
    """gamma_i = p_i / sum_j p_j, what draft i's last token weighs in x~ = sum_i gamma_i z_i (section 3.1)."""
    best = max(draft.score for draft in live)
    p = [math.exp(draft.score - best) for draft in live]  # of each beside the best; so few are quicker in a loop
    total = sum(p)
    return np.array([p_i / total for p_i in p])  # [K]


def next_step(logits: Floats, live: Sequence[Draft], start: Start, settings: Settings) -> Iterator[Draft]:
    """The K x C ways to go on, best first: each draft's score times p_f of each candidate."""
    if start.interpolation is not None and settings.interpolation == "nested":
        allowed = None if live[0].ids else start.allowed
        candidates, logp_f = both_sides(logits, histories(start, live), start.interpolation, settings, allowed)
    else:
        candidates, logp = likeliest(logits, settings)
        logp_f = chosen_by_ngrams(candidates, logp, live, start, settings)
    return best_first(live, candidates, scores_of(live) + logp_f)


def step_of_few(
    model: Selecting,
    mixture: tuple[Sequence[int], Floats],
    live: Sequence[Draft],
    start: Start,
    settings: Settings,
) -> Iterator[Draft]:
    """A pass and the same as `next_step` after it, from the few logits that a device has chosen."""
    r, tau, before = settings.candidates, settings.temperature, histories(start, live)
    if start.interpolation is not None and settings.interpolation == "nested":
        theirs = start.interpolation.successors(before, r)  # [A]
        said = model.step_likeliest(*mixture, r, theirs, tau)
        candidates, logits = each_once((said.ids, said.logits), (theirs, said.asked))  # [C] twice
        p = np.exp(logits / tau - said.log_z)
        logp_f = np.log(np.maximum(start.interpolation.nest(before, candidates, p), LEAST))
    else:
        said = model.step_likeliest(*mixture, r, NO_IDS, tau)
        candidates = said.ids
        logp_f = chosen_by_ngrams(candidates, log_softmax(said.logits / tau), live, start, settings)
    return best_first(live, candidates, scores_of(live) + logp_f)


def chosen_by_ngrams(
    candidates: Ids, logp: Floats, live: Sequence[Draft], start: Start, settings: Settings
) -> Floats:
    """The paper: n-grams choose among the model's top tokens. [R] twice -> [K, R], or [1, R] without n-grams."""
    if start.interpolation is None:
        return logp[None]
    return fuse(logp, start.interpolation(histories(start, live), candidates), settings.alpha)


def scores_of(live: Sequence[Draft]) -> Floats:
    """The drafts' scores, one row each. [K, 1]."""
    return np.array([[draft.score] for draft in live])


def histories(start: Start, live: Sequence[Draft]) -> Ids:
    """The last ids of each draft with the text before it, -1 where there are less. -> [K, REACH]."""
    before = (*NOTHING, *start.history)
    return np.array([(*before, *draft.ids)[-REACH:] for draft in live], dtype=np.int64)


def best_first(live: Sequence[Draft], candidates: Ids, scores: Floats) -> Iterator[Draft]:
    """Drafts with one candidate more each, by their scores [K, C]; equals by draft, then by candidate.

    Only those that are asked for are made. What the model rules out, by a logit of -inf, never follows.
    """
    flat, tokens = scores.ravel(), candidates.tolist()
    order = np.argsort(-flat, kind="stable")
    for start in range(0, len(order), SEVERAL):  # numbers leave arrays by many at once, or slowly
        places = order[start : start + SEVERAL]
        for place, score in zip(places.tolist(), flat[places].tolist(), strict=True):
            if score == -math.inf:
                return
            row, column = divmod(place, len(tokens))
            yield Draft((*live[row].ids, tokens[column]), score)


def likeliest(logits: Floats, settings: Settings) -> tuple[Ids, Floats]:
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


def both_sides(
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
        candidates, p_f = interpolation.nested(
            histories, p if allowed is None else barred(p, allowed), settings.candidates
        )
        if allowed is not None:
            p_f = among_allowed(p_f, p[allowed].sum() - p[candidates].sum())
        return candidates, np.log(np.maximum(p_f, LEAST))
    theirs = interpolation.successors(histories, settings.candidates)
    if allowed is not None:
        theirs = theirs[np.isin(theirs, allowed)]
    own = [top_allowed(row, settings.candidates, allowed) for row in logits]
    candidates = distinct([*own, theirs])
    z = np.array([[log_z(row, tau)] for row in logits])  # [K, 1], in double precision as all that follows
    p = np.exp(logits[:, candidates] / tau - z)  # [K, C]
    p_f = interpolation.nest(histories, candidates, p)
    if allowed is not None:
        all_allowed = np.exp([[log_z(row[allowed], tau)] for row in logits] - z)  # [K, 1]
        p_f = among_allowed(p_f, all_allowed - p.sum(axis=1, keepdims=True))
    return candidates, np.log(np.maximum(p_f, LEAST))


def among_allowed(p_f: Floats, others: Floats) -> Floats:
    """Probabilities given that some allowed token follows: a person has typed what all of them begin with.

    `others`: p of the allowed tokens that are no candidates, n-grams left aside, [K, 1] or one. [K, C] -> [K, C].
    """
    total = p_f.sum(axis=1, keepdims=True) + np.maximum(others, 0)
    return np.asarray(p_f / np.maximum(total, LEAST))


def select(
    options: Iterable[Draft], start: Start, settings: Settings, width: int = 0
) -> tuple[list[Draft], list[Draft]]:
    """From options, best first: the best `width` (0: k) that go on, and the finished ones met on the way to them.

    By probability, a few more are looked at: the ways in which a line can end add up to the worth of a draft.
    """
    k = width or settings.drafts
    few = 0 if settings.ranking == "mean" else FEW * k
    live: list[Draft] = []
    finished: list[Draft] = []
    for seen, option in enumerate(options, 1):
        if start.stop(option.ids):
            finished.append(option)
        elif len(live) < k:
            live.append(option)
        if len(live) == k and seen >= few:
            break
    return live, finished


def each_once(*parts: tuple[Ids, Floats]) -> tuple[Ids, Floats]:
    """Ids with their logits, sorted, each once; those that the model does not have are left out."""
    ids, logits = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    known = logits > -np.inf
    found, first = np.unique(ids[known], return_index=True)
    return found, logits[known][first]


def distinct(parts: Sequence[Ids]) -> Ids:
    """All ids of several arrays once each, sorted: `np.unique` without its overhead."""
    ids = np.sort(np.concatenate(parts))
    return ids[np.concatenate(([True], ids[1:] != ids[:-1]))]

"""Superposed Decoding: the ids of a prompt in, k drafts out, one forward pass per token whatever k is.

The paper: Shen et al., "Superposed Decoding: Multiple Generations from a Single Autoregressive Inference
Pass", NeurIPS 2024; sections are cited where they are computed.
Knows ids and probabilities only: no text, no tokenizer, no tensor library but numpy.

Legend: K live drafts, C candidate tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.candidates import Interpolation, ngram_proposals, score_logits, score_selected
from spd_lsp.decoding.hypotheses import Draft as Draft
from spd_lsp.decoding.hypotheses import TextOf, is_done, rank_drafts, ranking_score
from spd_lsp.models.logits import log_z, top_allowed
from spd_lsp.models.topk import TopK
from spd_lsp.settings import Settings

OPTIONS_PER_DRAFT = 4  # for each draft: options that are looked at even when enough are found
_REACH = 8  # ids of a history that n-grams are asked with, the longest context that tables hold
_NOTHING = (-1,) * _REACH  # stands before a text: no id
_SEVERAL = 40  # options that are made ready together


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

    def score_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """log p of each token of each draft after the last prefill's prompt, all in one pass."""


class SelectingModel(Model, Protocol):
    """A model that finds the few logits that choosing needs where all of them are, beside a GPU's memory."""

    selects_on_device: bool  # whether that is quicker than `step`

    def step_top_k(
        self, ids: Sequence[int], weights: Floats, k: int, extra_ids: Ids, temperature: float = 1.0
    ) -> TopK:
        """As `step`, but return only the k largest logits and those of some further ids."""


@dataclass(frozen=True, slots=True)
class DecodingResult:
    """The best k drafts, best first, and what they took."""

    best: list[Draft]
    passes: int  # forward passes, the prompt's counted as one
    longest: int  # tokens of the longest draft written, be it among the best or not
    rows: int = 0  # positions that the model read after the prompt: one a pass, or one for each row of a batch
    spare: list[Draft] = field(default_factory=list)  # finished beyond k, should some of the best read the same

    def scored(self, ranking: str) -> list[tuple[tuple[int, ...], float]]:
        """Ids and ranking score of each draft, best first, then the spare ones."""
        return [(draft.ids, ranking_score(draft, ranking)) for draft in [*self.best, *self.spare]]


@dataclass(frozen=True, slots=True)
class DecodingRequest:
    """Where drafts begin, and when one is finished."""

    prompt: Sequence[int]
    stop: Callable[[tuple[int, ...]], bool]  # whether a draft is finished, its last id included
    history: Sequence[int] = ()  # the text before the drafts, as n-grams see it
    interpolation: Interpolation | None = None
    allowed: Ids | None = None  # ids a draft may begin with, or None for any
    text_of: TextOf = tuple  # what a person sees of a draft: among finished ones those that read the same are one

    def continued_by(self, ids: tuple[int, ...]) -> DecodingRequest:
        """The same with some of the draft written already."""
        return DecodingRequest(
            [*self.prompt, *ids],
            lambda more: self.stop((*ids, *more)),
            [*self.history, *ids],
            self.interpolation,
            text_of=lambda more: self.text_of((*ids, *more)),
        )


def superpose(
    model: Model,
    start: DecodingRequest,
    settings: Settings,
    check: Callable[[], None] = lambda: None,
    width: int = 0,
) -> DecodingResult:
    """Write k drafts that go on from a prompt. `check` is called before each pass; what it raises ends it.

    `width` drafts are live, k if it is 0: more of them take no more passes, and end in more `spare` drafts.
    """
    k, by = settings.drafts, settings.ranking
    check()
    logits = model.prefill(start.prompt, check)
    live, ended = select_drafts(first_drafts(logits, start, settings, width), start, settings, width)
    finished = rank_drafts(ended, by, start.text_of)
    passes = 1
    while passes < settings.max_tokens and not is_done(live, finished, k, by):
        check()
        if settings.reset_every and passes % settings.reset_every == 0:
            live = live[:1]  # section 5.3: one draft goes on alone, from a cache that is its own again
            options = expand(model.prefill([*start.prompt, *live[0].ids], check), live, start, settings)
        else:
            options = _superposed_step(model, live, start, settings)
        passes += 1
        live, ended = select_drafts(options, start, settings, width)
        finished = rank_drafts([*finished, *ended], by, start.text_of)
    best = rank_drafts([*finished[:k], *live], by, start.text_of)[:k]
    longest = max(len(draft.ids) for draft in [*finished, *live])
    return DecodingResult(best, passes, longest, rows=passes - 1, spare=finished[k:])


def first_drafts(logits: Floats, start: DecodingRequest, settings: Settings, width: int = 0) -> Iterator[Draft]:
    """Draft i is the i-th most likely token after the prompt; the paper asks no n-grams yet (section 3.1)."""
    if start.interpolation is not None and settings.interpolation == "linear":
        return expand(logits, [Draft((), 0.0)], start, settings)
    # Twice as many as go on, if some are finished at once.
    ids = top_allowed(logits, 2 * (width or settings.drafts), start.allowed)  # [2k]
    among = logits if start.allowed is None else logits[start.allowed]
    logp = logits[ids].astype(np.float64) / settings.temperature - log_z(among, settings.temperature)
    return best_expansions([Draft((), 0.0)], ids, logp[None])


def _superposed_step(
    model: Model, live: Sequence[Draft], start: DecodingRequest, settings: Settings
) -> Iterator[Draft]:
    """One pass over the last tokens of all drafts, superposed; the ways to go on, best first."""
    ids, gamma = [draft.ids[-1] for draft in live], superposition_weights(live)
    if not getattr(model, "selects_on_device", False):
        return expand(model.step(ids, gamma), live, start, settings)
    before = ngram_histories(start, live)
    asked = ngram_proposals(before, start.interpolation, settings)
    said = cast(SelectingModel, model).step_top_k(ids, gamma, settings.candidates, asked, settings.temperature)
    return best_expansions(live, *score_selected(said, asked, before, start.interpolation, settings))


def superposition_weights(live: Sequence[Draft]) -> Floats:
    """gamma_i = p_i / sum_j p_j, what draft i's last token weighs in x~ = sum_i gamma_i z_i (section 3.1)."""
    best = max(draft.score for draft in live)
    p = [math.exp(draft.score - best) for draft in live]  # of each beside the best; so few are quicker in a loop
    total = sum(p)
    return np.array([p_i / total for p_i in p])  # [K]


def expand(logits: Floats, live: Sequence[Draft], start: DecodingRequest, settings: Settings) -> Iterator[Draft]:
    """The K x C ways to go on, best first: each draft's score times p_f of each candidate."""
    allowed = None if live[0].ids else start.allowed
    before = ngram_histories(start, live)
    return best_expansions(live, *score_logits(logits, before, start.interpolation, settings, allowed))


def ngram_histories(start: DecodingRequest, live: Sequence[Draft]) -> Ids:
    """The last ids of each draft with the text before it, -1 where there are less. -> [K, REACH]."""
    before = (*_NOTHING, *start.history)
    return np.array([(*before, *draft.ids)[-_REACH:] for draft in live], dtype=np.int64)


def best_expansions(live: Sequence[Draft], candidates: Ids, logp_f: Floats) -> Iterator[Draft]:
    """The K x C drafts with one candidate more each, best first; equals by draft, then by candidate.

    log p_f is [K, C], or [1, C] if it is the same for all. Only those drafts that are asked for are made. What the
    model rules out, by a logit of -inf, never follows.
    """
    scores = np.array([[draft.score] for draft in live]) + logp_f  # [K, C]
    flat, tokens = scores.ravel(), candidates.tolist()
    order = np.argsort(-flat, kind="stable")
    for start in range(0, len(order), _SEVERAL):  # numbers leave arrays by many at once, or slowly
        places = order[start : start + _SEVERAL]
        for place, score in zip(places.tolist(), flat[places].tolist(), strict=True):
            if score == -math.inf:
                return
            row, column = divmod(place, len(tokens))
            yield Draft((*live[row].ids, tokens[column]), score)


def select_drafts(
    options: Iterable[Draft], start: DecodingRequest, settings: Settings, width: int = 0
) -> tuple[list[Draft], list[Draft]]:
    """From options, best first: the best `width` (0: k) that go on, and the finished ones met on the way to them.

    By probability, a few more are looked at: the ways in which a line can end add up to the worth of a draft.
    """
    k = width or settings.drafts
    few = 0 if settings.ranking == "mean" else OPTIONS_PER_DRAFT * k
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

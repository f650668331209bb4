"""All decoders by name: those of the product, the paper's with nucleus sampling, and their baselines.

All have the signature of `superpose` and use the same n-grams, stop rule and ranking. A pass of the product's
decoders reads one position. A pass of beam search or sampling reads one per unfinished draft.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from spd_lsp.decoding.decoders import DecodingFunction, decoder_for
from spd_lsp.decoding.nucleus import draw, sampled_resets, seeded
from spd_lsp.decoding.superposed import (
    DecodingRequest,
    DecodingResult,
    Draft,
    Model,
    expand,
    is_done,
    rank_drafts,
    select_drafts,
)
from spd_lsp.models.base import Engine
from spd_lsp.settings import Settings

Check = Callable[[], None]


class _DraftBatch:
    """The drafts of one prompt, which are read together, and their cost."""

    def __init__(self, model: Model, request: DecodingRequest, settings: Settings, check: Check) -> None:
        self.model = model
        self.request = request
        self.settings = settings
        self.check = check
        self.passes = self.positions = 0  # positions after the prompt

    def prefill(self) -> list[Draft]:
        """Read the prompt once for all drafts. -> drafts of one token, best first"""
        self.check()
        logits = self.model.prefill(self.request.prompt, self.check)
        self.passes = 1
        # By the paper's formula, the first token asks no n-grams (section 3.1).
        ngrams = None if self.settings.interpolation == "paper" else self.request.interpolation
        request = replace(self.request, interpolation=ngrams)
        return list(expand(logits, [Draft((), 0.0)], request, self.settings))

    def step(self, live: Sequence[Draft]) -> list[Iterator[Draft]]:
        """Read the last token of each draft. -> its continuations by its own logits, best first"""
        self.check()
        logits = cast(Engine, self.model).read_drafts([draft.ids for draft in live])  # N times [V]
        self.passes += 1
        self.positions += len(live)
        return [expand(row, [one], self.request, self.settings) for one, row in zip(live, logits, strict=True)]

    def result(self, best: list[Draft], every: Sequence[Draft], spare: Sequence[Draft] = ()) -> DecodingResult:
        """Return the best drafts and the cost of all."""
        longest = max(len(draft.ids) for draft in every)
        return DecodingResult(best, self.passes, longest, rows=self.positions, spare=list(spare))


def beam(model: Model, request: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """Return the k best drafts of beam search, ranked like superposed drafts."""
    k, ranking = settings.drafts, settings.ranking
    batch = _DraftBatch(model, request, settings, check)
    live, ended = select_drafts(batch.prefill(), request, settings)
    finished = rank_drafts(ended, ranking, request.text_of)
    while batch.passes < settings.max_tokens and not is_done(live, finished, k, ranking):
        options = heapq.merge(*batch.step(live), key=lambda draft: -draft.score)
        live, ended = select_drafts(options, request, settings)
        finished = rank_drafts([*finished, *ended], ranking, request.text_of)
    best = rank_drafts([*finished[:k], *live], ranking, request.text_of)[:k]
    return batch.result(best, [*finished, *live], spare=finished[k:])


def _nucleus(model: Model, request: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """Draw k samples and rank the distinct ones by p_f."""
    batch, samples = sample(model, request, settings, check)
    once = {draft.ids: draft for draft in samples}.values()
    return batch.result(rank_drafts(once, settings.ranking, request.text_of)[: settings.drafts], samples)


def sample(
    model: Model, request: DecodingRequest, settings: Settings, check: Check
) -> tuple[_DraftBatch, list[Draft]]:
    """Draw k samples, seeded by the prompt; equal samples are kept."""
    batch = _DraftBatch(model, request, settings, check)
    rng = seeded(request.prompt)
    first = batch.prefill()
    live = [draw(first, rng) for _ in range(settings.drafts)]
    done: list[Draft] = []
    while True:
        ends = [len(draft.ids) == settings.max_tokens or request.stop(draft.ids) for draft in live]
        done += [draft for draft, ended in zip(live, ends, strict=True) if ended]
        live = [draft for draft, ended in zip(live, ends, strict=True) if not ended]
        if not live:
            return batch, done
        live = [draw(options, rng) for options in batch.step(live)]


def _product_decoder(
    model: Model, start: DecodingRequest, settings: Settings, check: Check, **chosen: Any
) -> DecodingResult:
    """Return the decoder that these settings select in the product."""
    settings = replace(settings, **chosen)
    return decoder_for(model, settings)(model, start, settings, check)


DECODERS: dict[str, DecodingFunction] = {
    "superposed": partial(_product_decoder, decoder="superposed"),
    "best-first": partial(_product_decoder, decoder="best-first"),
    "greedy": partial(_product_decoder, decoder="superposed", drafts=1),
    "nucleus": _nucleus,
    "beam": beam,
    "sampled-resets": sampled_resets,
}

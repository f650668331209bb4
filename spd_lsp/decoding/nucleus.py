"""Nucleus sampling with Superposed Decoding: samples that differ from their first token on, with k drafts each.

A sample costs a pass per token, whatever k is. Resets may also go on from a draft that is drawn, instead of the
best.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.decoding.candidates import log_softmax
from spd_lsp.decoding.superposed import (
    DecodingRequest,
    DecodingResult,
    Draft,
    Model,
    expand,
    rank_drafts,
    run_passes,
    superposed_passes,
)
from spd_lsp.settings import Settings

_TOP_P = 0.9  # of the fewest tokens that are drawn from, as in the paper
_TEMPERATURE = 0.6  # likewise
_CANDIDATES = 50  # tokens that are drawn from at most


def nucleus_superposed(
    model: Model,
    request: DecodingRequest,
    settings: Settings,
    check: Callable[[], None] = lambda: None,
    samples: int = 3,
) -> DecodingResult:
    """Return the best k of the drafts of several samples, and the others as `spare`."""
    results = list(sampled_drafts(model, request, settings, check, samples))
    drafts = {draft.ids: draft for result in results for draft in (*result.best, *result.spare)}  # each once
    ranked = rank_drafts(drafts.values(), settings.ranking, request.text_of)
    k = settings.drafts
    passes, rows = sum(result.passes for result in results), sum(result.rows for result in results)
    return DecodingResult(ranked[:k], passes, max(result.longest for result in results), rows, ranked[k:])


def sampled_drafts(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None], samples: int
) -> Iterable[DecodingResult]:
    """Yield k drafts of each sample: the first token is drawn from the nucleus, and what follows is superposed.

    The prompt counts as a pass of each sample, as if it were not cached. Resets go on from a draft that is drawn.
    """
    rng = seeded(request.prompt)
    nucleus = replace(settings, temperature=_TEMPERATURE, candidates=_CANDIDATES)
    beginning = without_first_ngrams(request, settings)

    def first(logits: Floats) -> list[Draft]:
        return [draw(expand(logits, [Draft((), 0.0)], beginning, nucleus), rng)]

    kept = partial(draw, rng=rng, top_p=1.0)
    for _ in range(samples):
        yield run_passes(model, superposed_passes(request, settings, first=first, kept=kept), check)


def sampled_resets(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None] = lambda: None
) -> DecodingResult:
    """Superposed drafts whose resets go on from a draft that is drawn by its probability."""
    kept = partial(draw, rng=seeded(request.prompt), top_p=1.0)
    return run_passes(model, superposed_passes(request, settings, kept=kept), check)


def without_first_ngrams(request: DecodingRequest, settings: Settings) -> DecodingRequest:
    """The request as it is for the first token, which by the paper's formula asks no n-grams (section 3.1)."""
    return replace(request, interpolation=None) if settings.interpolation == "paper" else request


def seeded(prompt: Sequence[int]) -> np.random.Generator:
    """The same prompt, the same draws."""
    return np.random.default_rng(zlib.crc32(np.asarray(prompt, dtype=np.int64).tobytes()))


def draw(options: Iterable[Draft], rng: np.random.Generator, top_p: float = _TOP_P) -> Draft:
    """Draw by probability, from the fewest drafts that hold `top_p` of that of all.

    Example: p (.6, .05, .35) -> the first or the last, with .63 and .37.
    """
    ranked = sorted(options, key=lambda draft: -draft.score)
    mass = np.cumsum(np.exp(log_softmax(np.array([draft.score for draft in ranked]))))
    kept = mass[: np.searchsorted(mass, top_p) + 1]
    return ranked[int(np.searchsorted(kept, rng.random() * kept[-1], side="right"))]

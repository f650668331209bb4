"""Samples in Superposed Decoding: nucleus sampling of first tokens, and resets that sample (section 5.3).

In: a model and a request. Out: drafts; the prompt is the seed of all draws.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ngram_builders.arrays import Ids
from spd_lsp.decoding.candidates import log_softmax
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Draft, Model, expand, superpose
from spd_lsp.settings import Settings

_TOP_P = 0.9  # of the smallest set of tokens to draw from, as in the paper
_TEMPERATURE = 0.6  # likewise
_CANDIDATES = 50  # tokens to draw from, at most


def sampled_drafts(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None], samples: int
) -> Iterator[DecodingResult]:
    """Yield k drafts of each sample: the first token is drawn from the nucleus, and what follows is superposed."""
    rng = seeded(request.prompt)
    nucleus = replace(settings, temperature=_TEMPERATURE, candidates=_CANDIDATES)
    # By the paper's formula, the first token uses no n-grams (section 3.1).
    ngrams = None if settings.interpolation == "paper" else request.interpolation
    logits = model.prefill(request.prompt, check)
    options = list(expand(logits, [Draft((), 0.0)], replace(request, interpolation=ngrams), nucleus))
    for _ in range(samples):
        first: dict[tuple[int, ...], Ids] = {(): np.array(draw(options, rng).ids)}
        yield sampled_resets(model, replace(request, allowed=first.get), settings, check)


def sampled_resets(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None]
) -> DecodingResult:
    """Return superposed drafts; each reset continues a draft that is drawn by its probability."""
    return superpose(model, request, settings, check, kept=partial(draw, rng=seeded(request.prompt), top_p=1.0))


def seeded(prompt: Sequence[int]) -> np.random.Generator:
    """Return a generator that draws the same for the same prompt."""
    return np.random.default_rng(zlib.crc32(np.asarray(prompt, dtype=np.int64).tobytes()))


def draw(options: Iterable[Draft], rng: np.random.Generator, top_p: float = _TOP_P) -> Draft:
    """Draw a draft by its probability, from the fewest that hold `top_p` of that of all.

    Example: p (.6, .05, .35) -> the first or the last, with .63 and .37.
    """
    ranked = sorted(options, key=lambda draft: -draft.score)
    mass = np.cumsum(np.exp(log_softmax(np.array([draft.score for draft in ranked]))))
    kept = mass[: np.searchsorted(mass, top_p) + 1]
    return ranked[int(np.searchsorted(kept, rng.random() * kept[-1], side="right"))]

"""The decoders that a user can choose, all with the signature of `superpose`; they work without a model, too.

Shapes: K drafts, C candidate tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.candidates import TINY, Histories, Interpolation
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model, superpose
from spd_lsp.settings import Settings

FAST_PASS_SECONDS = 0.03  # a person waits .3 s, the time of ten such passes

DecodingFunction = Callable[[Model, DecodingRequest, Settings, Callable[[], None]], DecodingResult]


def decoder_for(model: object, settings: Settings, *, is_fast: bool = True) -> DecodingFunction:
    """Return the decoder that the settings name; without a model, one that asks n-grams alone, at no pass.

    Where they leave it open, the model's speed decides. Only superposed drafts have resets, and the paper's
    formula and ranking.
    """
    name = settings.decoder
    if name == "auto":
        is_plain = (settings.interpolation, settings.ranking) == ("linear", "probability")
        name = "best-first" if is_plain and is_fast and not settings.reset_every else "superposed"
    chosen = best_first if name == "best-first" else superpose
    return chosen if getattr(model, "predicts", True) else partial(_decode_alone, chosen)


def _decode_alone(
    decode: DecodingFunction, model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None]
) -> DecodingResult:
    """Decode by n-grams alone; no pass is counted."""
    known = _KnownAlone(request.interpolation, cast(Any, model).end_of_text)
    request = replace(request, interpolation=known)
    result = decode(model, request, replace(settings, interpolation="linear"), check)
    return replace(result, passes=0, rows=0)


@dataclass(frozen=True, slots=True)
class _KnownAlone:
    """N-grams as an `Interpolation`: a draft ends where they know no next token."""

    ngrams: Interpolation | None
    end_of_text: int

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        if self.ngrams is None:
            return np.zeros((len(histories), len(candidates)))
        return self.ngrams(histories, candidates)

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """Mix as usual, and leave out tokens that are in no history's n-grams."""
        nothing = np.array([self.end_of_text]), np.full((len(histories), 1), TINY)
        if self.ngrams is None:
            return nothing
        candidates, p_f = self.ngrams.mix_top(histories, p, n)  # [C], [K, C]
        known = (self.ngrams(histories, candidates) > 0).any(axis=0) | (candidates == self.end_of_text)
        return (candidates[known], p_f[:, known]) if known.any() else nothing

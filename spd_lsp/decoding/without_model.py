"""Drafts without a model: n-grams alone say what follows, and a draft ends where they know nothing.

Shapes: K drafts, C candidate tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.candidates import TINY, Histories, Interpolation
from spd_lsp.decoding.superposed import DecodingRequest


def without_model(request: DecodingRequest, end_of_text: int) -> DecodingRequest:
    """Return what to decode where all logits are alike, but for the end of text's, which is the largest."""
    return replace(request, interpolation=_KnownAlone(request.interpolation, end_of_text))


@dataclass(frozen=True, slots=True)
class _KnownAlone:
    """N-grams that leave out what they do not know, but for the end of text."""

    ngrams: Interpolation | None
    end_of_text: int

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """As in `Interpolation`."""
        if self.ngrams is None:
            return np.zeros((len(histories), len(candidates)))
        return self.ngrams(histories, candidates)

    def mix(self, histories: Histories, candidates: Ids, p: Floats) -> Floats:
        """As in `Interpolation`."""
        if self.ngrams is None:
            return np.broadcast_to(p, (len(histories), len(candidates)))
        return self.ngrams.mix(histories, candidates, p)

    def successors(self, histories: Histories, n: int) -> Ids:
        """As in `Interpolation`."""
        return np.empty(0, np.int64) if self.ngrams is None else self.ngrams.successors(histories, n)

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """As in `Interpolation`, without tokens that no history's n-grams know."""
        nothing = np.array([self.end_of_text]), np.full((len(histories), 1), TINY)
        if self.ngrams is None:
            return nothing
        candidates, p_f = self.ngrams.mix_top(histories, p, n)  # [C], [K, C]
        known = (self.ngrams(histories, candidates) > 0).any(axis=0) | (candidates == self.end_of_text)
        return (candidates[known], p_f[:, known]) if known.any() else nothing

"""Drafts that begin or go on with a draw: the same draws for the same prompt, from all that may be drawn."""

from __future__ import annotations

from spd_lsp.decoding.nucleus import sampled_resets
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.settings import Settings
from tests.conftest import TinyModel
from tests.decoding.test_superposed import never


def nothing():
    pass


def test_a_drawn_reset_goes_on_from_one_draft_not_always_the_best():
    settings = Settings(drafts=3, max_tokens=6, reset_every=3, temperature=3.0)
    best, drawn = [], []
    for seed in range(12):
        request = DecodingRequest([1, seed], never)
        best.append(superpose(TinyModel(seed), request, settings))
        drawn.append(sampled_resets(TinyModel(seed), request, settings, nothing))
        assert len({draft.ids[:3] for draft in drawn[-1].best}) == 1
        assert (drawn[-1].passes, drawn[-1].rows) == (best[-1].passes, best[-1].rows) == (6, 2 + 3 + 2)
    same = sum(a.best[0].ids[:3] == b.best[0].ids[:3] for a, b in zip(best, drawn, strict=True))
    assert 0 < same < 12
    assert sampled_resets(TinyModel(1), DecodingRequest([1, 1], never), settings, nothing) == drawn[1]

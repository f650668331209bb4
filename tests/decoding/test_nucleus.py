"""Nucleus samples that superposed drafts finish: what each costs, and that all are what they would be alone."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.decoding.nucleus import nucleus_superposed, sampled_drafts, sampled_resets
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.settings import Settings
from tests.conftest import TinyModel
from tests.decoding.test_superposed import Counts, never


def nothing():
    pass


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("reset_every", [0, 2])
def test_passes_are_samples_times_the_tokens_of_the_longest_draft_whatever_k_is(samples, k, reset_every):
    model = TinyModel(3)
    settings = Settings(drafts=k, max_tokens=5, reset_every=reset_every)
    found = nucleus_superposed(model, DecodingRequest([1, 2], never), settings, samples=samples)
    assert model.passes == found.passes == samples * found.longest == samples * 5
    assert {len(draft.ids) for draft in found.best} == {5}


@pytest.mark.parametrize("counts", [Counts(3), None])
@pytest.mark.parametrize("rule", ["paper", "linear"])
def test_a_sample_is_finished_as_if_nothing_else_might_begin_it(counts, rule):
    settings = Settings(drafts=3, max_tokens=5, interpolation=rule, temperature=0.8, ranking="mean")
    firsts = set()
    for run in sampled_drafts(TinyModel(5), DecodingRequest([1, 2], never, [1, 2], counts), settings, nothing, 9):
        (first,) = {draft.ids[0] for draft in run.best}
        firsts.add(first)
        alone = DecodingRequest(
            [1, 2], never, [1, 2], counts, lambda ids, one=first: None if ids else np.array([one])
        )
        found = superpose(TinyModel(5), alone, settings).best
        assert [draft.ids for draft in found] == [draft.ids for draft in run.best]
        probability = run.best[0].score - found[0].score  # of what is given there
        assert probability < 0
        assert [draft.score - probability for draft in run.best] == pytest.approx([draft.score for draft in found])
    assert len(firsts) > 1


def test_a_drawn_reset_goes_on_from_one_draft_not_always_the_best():
    settings = Settings(drafts=3, max_tokens=6, reset_every=3, temperature=3.0)
    best, drawn = [], []
    for seed in range(12):
        request = DecodingRequest([1, seed], never)
        best.append(superpose(TinyModel(seed), request, settings))
        drawn.append(sampled_resets(TinyModel(seed), request, settings))
        assert len({draft.ids[:3] for draft in drawn[-1].best}) == 1
        assert (drawn[-1].passes, drawn[-1].rows) == (best[-1].passes, best[-1].rows) == (6, 2 + 3 + 2)
    same = sum(a.best[0].ids[:3] == b.best[0].ids[:3] for a, b in zip(best, drawn, strict=True))
    assert 0 < same < 12
    assert sampled_resets(TinyModel(1), DecodingRequest([1, 1], never), settings) == drawn[1]  # the same draws

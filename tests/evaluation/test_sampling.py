"""Nucleus sampling draws from what each row says, k rows a pass."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.evaluation import sampling
from spd_lsp.evaluation.sampling import TOP_P, draw, nucleus
from spd_lsp.models.logits import log_softmax
from spd_lsp.settings import Settings
from tests.conftest import TinyModel

PROMPT = [1, 2]


def never(ids):
    return False


def at_three(ids):
    return ids[-1] == 3


def nothing():
    pass


@pytest.mark.parametrize("stop", [never, at_three])
@pytest.mark.parametrize("seed", range(5))
def test_every_sample_has_the_score_of_its_own_text(seed, stop):
    chosen = Settings(drafts=5, candidates=10, max_tokens=6)
    found = nucleus(TinyModel(seed, 10), DecodingRequest(PROMPT, stop), chosen, nothing)
    for draft in found.best:
        rows = [log_softmax(TinyModel(seed, 10).prefill([*PROMPT, *draft.ids[:at]])) for at in range(6)]
        own = [row[token] for row, token in zip(rows, draft.ids, strict=False)]
        assert draft.score == pytest.approx(sum(own))
        assert len(draft.ids) == 6 or stop(draft.ids)


def test_samples_follow_the_distribution():
    chosen = Settings(drafts=16, candidates=10, max_tokens=1, temperature=5.0)
    p = np.exp(log_softmax(TinyModel(4, 10).prefill(PROMPT) / 5))
    order = np.argsort(-p)
    kept = order[: int(np.searchsorted(np.cumsum(p[order]), TOP_P)) + 1]
    found = nucleus(TinyModel(4, 10), DecodingRequest(PROMPT, never), chosen, nothing)
    assert {draft.ids[0] for draft in found.best} <= set(kept.tolist())
    assert len(found.best) > 1


def test_sampling_from_the_best_alone_is_greedy(monkeypatch):
    monkeypatch.setattr(sampling, "TOP_P", 1e-9)
    found = nucleus(TinyModel(3, 10), DecodingRequest(PROMPT, never), Settings(drafts=4, max_tokens=6), nothing)
    greedy = superpose(TinyModel(3, 10), DecodingRequest(PROMPT, never), Settings(drafts=1, max_tokens=6))
    assert [draft.ids for draft in found.best] == [greedy.best[0].ids]


def test_finished_samples_leave_the_batch():
    model = TinyModel(1, 10)
    chosen = Settings(drafts=8, max_tokens=8, temperature=5.0)
    found = nucleus(model, DecodingRequest(PROMPT, at_three), chosen, nothing)
    assert found.rows == model.rows < 8 * (found.passes - 1)


def test_draw_keeps_to_the_fewest_that_hold_the_mass():
    random = np.random.default_rng(1)
    drawn = [draw(np.log([0.6, 0.05, 0.35]), random) for _ in range(2000)]
    assert TOP_P < 0.95
    assert set(drawn) == {0, 2}
    assert drawn.count(0) / 2000 == pytest.approx(0.6 / 0.95, abs=0.05)

"""What may follow a draft is weighed by the paper's formula, or proposed by model and n-grams alike."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.decoding.candidates import (
    LOG_DELTA,
    fuse,
    ngram_proposals,
    score_selected,
)
from spd_lsp.decoding.superposed import condition_on_allowed, score_logits
from spd_lsp.models.topk import select_top_k
from spd_lsp.settings import Settings


class Bigrams:
    """Says of token 4 that it follows for certain, whatever was before."""

    def __call__(self, histories, candidates):
        return np.tile(candidates == 4, (len(histories), 1)).astype(float)

    def mix(self, histories, candidates, p):
        return 0.5 * p + 0.5 * self(histories, candidates)

    def successors(self, histories, n):
        return np.array([4, 99])  # the last is beyond the model's vocabulary

    def mix_top(self, histories, p, n):
        candidates = np.array(sorted({*np.argsort(-p)[:n].tolist(), 4}))
        return candidates, self.mix(histories, candidates, p[candidates])


def test_fuse_multiplies_where_both_know_a_token_and_leaves_the_rest_out():
    logp = np.log([0.5, 0.3, 0.2])
    found = fuse(logp, np.array([[0.1, 0.0, 0.4], [0.0, 0.0, 0.0]]), 0.5)
    assert np.exp(found[0]) == pytest.approx([(0.5 * 0.1) ** 0.5, 0.0, (0.2 * 0.4) ** 0.5])
    assert found[1] == pytest.approx(0.5 * logp + LOG_DELTA)


def test_what_the_paper_leaves_out_comes_after_all_that_it_knows():
    logp = np.log([0.9, 0.1 - 1e-12, 1e-12])
    unknown, rare = fuse(logp, np.array([[0.0, 0.2, 1e-12]]), 0.54)[0, [0, 2]]
    assert -np.inf < unknown < rare + LOG_DELTA


@pytest.mark.parametrize("rule", ["linear", "paper"])
@pytest.mark.parametrize("interpolation", [Bigrams(), None])
def test_few_logits_give_what_all_of_them_give(rule, interpolation):
    logits, histories = np.array([2.0, 1.0, 0.0, -1.0, -2.0, 0.5]), [[1], [2]]
    settings = Settings(candidates=3, interpolation=rule, temperature=0.7)
    asked = ngram_proposals(histories, interpolation, settings)
    few = score_selected(select_top_k(logits, 3, asked, 0.7), asked, histories, interpolation, settings)
    whole = score_logits(logits, histories, interpolation, settings, None)
    for found, expected in zip(few, whole, strict=True):
        np.testing.assert_allclose(found, expected)


def test_what_is_not_allowed_takes_no_part():
    p_f = np.array([[0.1, 0.2], [0.3, 0.1]])
    np.testing.assert_allclose(condition_on_allowed(p_f, 0.1), [[0.25, 0.5], [0.6, 0.2]])
    assert np.isfinite(condition_on_allowed(np.zeros((1, 2)), 0.0)).all()

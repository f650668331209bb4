"""Verified drafts are superposed ones, scored as if each had been read alone."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.decoding.candidates import LOG_DELTA, TINY
from spd_lsp.decoding.rescoring import DRAFTS_PER_COMPLETION, rescore
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.logits import log_softmax
from spd_lsp.settings import Settings
from tests.conftest import TinyModel
from tests.decoding.test_superposed import Counts

PROMPT = [1, 2]


def at_three(ids):
    return ids[-1] == 3


def nothing():
    pass


def alone(seed, ids):
    """log p of each token, everything read afresh."""
    return [log_softmax(TinyModel(seed).prefill([*PROMPT, *ids[:at]])) for at in range(len(ids))]


@pytest.mark.parametrize("seed", range(5))
def test_without_ngrams_the_score_is_what_the_model_says_of_the_draft_alone(seed):
    chosen = Settings(drafts=3, max_tokens=6)
    found = rescore(TinyModel(seed), DecodingRequest(PROMPT, at_three), chosen, nothing)
    for draft in found.best:
        own = [row[token] for row, token in zip(alone(seed, draft.ids), draft.ids, strict=True)]
        assert draft.score == pytest.approx(sum(own))
    scores = [draft.score for draft in found.best]
    assert scores == sorted(scores, reverse=True)


def test_what_other_ways_to_end_add_is_kept():
    start = DecodingRequest(PROMPT, lambda ids: ids[-1] in (3, 4), text_of=lambda ids: ids[:-1])
    found = rescore(TinyModel(1), start, Settings(drafts=3, max_tokens=6, temperature=5.0), nothing)
    merged = [draft for draft in found.best if draft.merged_score > 0]
    assert merged
    for draft in merged:
        own = [row[token] for row, token in zip(alone(1, draft.ids), draft.ids, strict=True)]
        assert draft.score == pytest.approx(sum(own) + draft.merged_score)


@pytest.mark.parametrize("seed", range(5))
def test_ngrams_are_mixed_with_each_token_after_its_own_history(seed):
    counts = Counts(seed)
    chosen = Settings(drafts=3, max_tokens=5)
    found = rescore(TinyModel(seed), DecodingRequest(PROMPT, at_three, PROMPT, counts), chosen, nothing)
    for draft in found.best:
        score = 0.0
        for at, row in enumerate(alone(seed, draft.ids)):
            last, token = [*PROMPT, *draft.ids][at + 1], draft.ids[at]
            score += np.log(max(0.5 * np.exp(row[token]) + 0.5 * counts.table[last, token], TINY))
        assert draft.score == pytest.approx(score)


def test_by_the_papers_formula_too():
    counts = Counts(2)
    chosen = Settings(drafts=3, max_tokens=5, interpolation="paper", ranking="mean", alpha=0.3)
    found = rescore(TinyModel(2), DecodingRequest(PROMPT, at_three, PROMPT, counts), chosen, nothing)
    for draft in found.best:
        score = 0.0
        for at, row in enumerate(alone(2, draft.ids)):
            p = counts.table[[*PROMPT, *draft.ids][at + 1], draft.ids[at]]
            ngram = 0.3 * np.log(p) if p > 0 else LOG_DELTA
            score += row[draft.ids[at]] if at == 0 else 0.7 * row[draft.ids[at]] + ngram
        assert draft.score == pytest.approx(score)


def test_some_drafts_more_are_read_than_shown_and_it_costs_one_pass():
    start, chosen = DecodingRequest(PROMPT, at_three), Settings(drafts=2, max_tokens=8, temperature=3.0)
    written = superpose(TinyModel(4), start, chosen, width=2 * DRAFTS_PER_COMPLETION)
    model = TinyModel(4)
    found = rescore(model, start, chosen, nothing)
    read = [*written.best, *written.spare][: 2 * DRAFTS_PER_COMPLETION]
    assert {draft.ids for draft in [*found.best, *found.spare]} == {draft.ids for draft in read}
    assert found.passes == model.passes == written.passes + 1
    assert found.rows == written.rows + model.rows
    assert len(found.best) == 2

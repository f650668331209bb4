"""Best-first drafts are a beam's for fewer rows: what is far behind borrows what it would have read."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spd_lsp.decoding import best_first as module
from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.candidates import log_softmax
from spd_lsp.decoding.superposed import DecodingRequest, Draft, superpose
from spd_lsp.evaluation.decoders import beam
from spd_lsp.settings import Settings
from tests.conftest import VOCABULARY, TinyModel
from tests.decoding.test_superposed import Counts

PROMPT = [1, 2, 3]
END, OTHER = 3, 0


def nothing():
    pass


def at_end(ids):
    return ids[-1] == END


def never(ids):
    return False


class Scripted(TinyModel):
    """The probabilities of the next token, by the draft so far."""

    def __init__(self, rows, default):
        super().__init__()
        self.script, self.default, self.seen = rows, default, []

    def logits_after(self, ids):
        draft = tuple(ids[len(self.prompt) :])
        self.seen.append(draft)
        p = np.full(VOCABULARY, 1e-9)
        for token, value in self.script.get(draft, self.default).items():
            p[token] = value
        p[OTHER] += max(0.0, 1 - p.sum())
        return np.log(p)


@hypothesis_settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 5),
    tau=st.sampled_from([0.5, 1.0, 3.0]),
    stop=st.sampled_from([at_end, never]),
    asks=st.booleans(),
)
def test_the_best_draft_is_no_worse_than_a_beams(seed, k, tau, stop, asks):
    chosen = Settings(drafts=k, temperature=tau, max_tokens=7, candidates=VOCABULARY)
    request = DecodingRequest(PROMPT, stop, PROMPT, Counts(seed) if asks else None)
    expected = beam(TinyModel(seed), request, chosen, nothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_READ", math.inf)
        found = best_first(TinyModel(seed), request, chosen)
    assert found.best[0].score >= expected.best[0].score - 1e-6


def test_drafts_cost_fewer_rows_than_a_beams():
    """All in all: a beam may end sooner where one draft is certain."""
    chosen, request = Settings(drafts=3, max_tokens=7), DecodingRequest(PROMPT, at_end)
    found = sum(best_first(TinyModel(seed), request, chosen).rows for seed in range(40))
    assert found < sum(beam(TinyModel(seed), request, chosen, nothing).rows for seed in range(40))


@pytest.mark.parametrize("seed", range(5))
def test_the_score_of_the_best_draft_is_what_model_and_ngrams_say_of_it_alone(seed):
    counts, chosen = Counts(seed), Settings(drafts=3, max_tokens=6)
    best = best_first(TinyModel(seed), DecodingRequest(PROMPT, at_end, PROMPT, counts), chosen).best[0]
    score = 0.0
    for length, token in enumerate(best.ids):
        text = [*PROMPT, *best.ids[:length]]
        p = math.exp(log_softmax(TinyModel(seed).prefill(text))[token])
        score += math.log(0.5 * p + 0.5 * counts.table[text[-1], token])
    assert best.score == pytest.approx(score)


def test_drafts_far_behind_borrow_and_cost_nothing():
    model = Scripted({(): {5: 0.9, 6: 0.04, 7: 0.03}}, {END: 0.99, 8: 0.01})
    found = best_first(model, DecodingRequest(PROMPT, at_end), Settings(drafts=3, max_tokens=6))
    assert [draft.ids for draft in found.best] == [(5, END), (6, END), (7, END)]
    assert model.seen == [(), (5,)]
    assert (found.passes, found.rows) == (model.passes, model.rows) == (2, 1)


def test_a_draft_that_may_become_the_best_is_read():
    rows = {(): {5: 0.5, 6: 0.45}, (5,): {END: 0.3, 8: 0.7}, (6,): {END: 0.9}}
    model = Scripted(rows, {END: 0.1, 9: 0.1})
    found = best_first(model, DecodingRequest(PROMPT, at_end), Settings(drafts=3, max_tokens=6))
    assert found.best[0] == Draft((6, END), pytest.approx(math.log(0.45 * 0.9), abs=1e-3))
    assert (6,) in model.seen


def test_the_likeliest_draft_is_read_next_whatever_its_length():
    rows = {(): {5: 0.55, 6: 0.41, 7: 0.04}, (5,): {8: 0.6}, (6,): {9: 0.9}, (6, 9): {END: 0.99}}
    model = Scripted(rows, {})
    best_first(model, DecodingRequest(PROMPT, at_end), Settings(drafts=3, max_tokens=4))
    assert model.seen[:5] == [(), (5,), (6,), (6, 9), (5, 8)]
    assert (7,) not in model.seen


def test_a_draft_borrows_from_one_that_ends_in_its_own_last_token():
    """Though another of its length is likelier."""
    rows = {
        (): {5: 0.52, 6: 0.44, 7: 0.04},
        (5,): {8: 0.6, END: 0.4}, (6,): {9: 1.0}, (7,): {8: 1.0},
        (5, 8): {END: 0.99}, (6, 9): {END: 0.01, 4: 0.99}, (6, 9, 4): {END: 0.99},
    }  # fmt: skip
    model = Scripted(rows, {10: 1.0})
    found = best_first(model, DecodingRequest(PROMPT, at_end), Settings(drafts=4, max_tokens=6))
    assert (7, 8, END) in [draft.ids for draft in found.best]
    assert (7, 8) not in model.seen


def test_what_is_borrowed_is_mixed_with_the_ngrams_of_the_drafts_own_history():
    counts = Counts(0)
    counts.table[:] = 1 / VOCABULARY
    counts.table[6] = np.eye(VOCABULARY)[9]
    model = Scripted({(): {5: 0.97, 6: 0.03}}, {END: 1.0})
    request = DecodingRequest(PROMPT, at_end, PROMPT, counts)
    found = best_first(model, request, Settings(drafts=2, max_tokens=6))
    assert model.seen == [(), (5,)]
    first = {5: 0.485 + 0.5 / VOCABULARY, 6: 0.015 + 0.5 / VOCABULARY}
    scores = {draft.ids: math.exp(draft.score) for draft in found.best}
    assert scores[5, END] == pytest.approx(first[5] * (0.5 + 0.5 / VOCABULARY), rel=1e-4)
    assert scores[6, END] == pytest.approx(first[6] * 0.5, rel=1e-4)  # the other half is token 9


@pytest.mark.parametrize("k", [1, 3, 8])
def test_where_nothing_is_certain_it_costs_three_rows_a_token_at_most(k):
    model = TinyModel(4)
    found = best_first(model, DecodingRequest(PROMPT, never), Settings(drafts=k, temperature=10, max_tokens=12))
    assert len(found.best) == k
    assert all(len(draft.ids) == 12 for draft in found.best)
    assert found.rows == model.rows <= min(k, 3) * 11


@pytest.mark.parametrize("decode", [best_first, superpose])
@pytest.mark.parametrize("step", range(6))
def test_it_can_be_cancelled_before_every_pass(decode, step):
    model, calls = TinyModel(1), []

    def check():
        calls.append(model.passes)
        if model.passes == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode(model, DecodingRequest(PROMPT, never), Settings(drafts=3, max_tokens=8), check)
    assert model.passes == step

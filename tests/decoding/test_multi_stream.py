"""Streams stand between superposed decoding and beam search, and are either at the ends."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spd_lsp.decoding.multi_stream import Stream, own_share, regroup, split_streams, superpose_streams
from spd_lsp.decoding.superposed import DecodingRequest, Draft, superpose
from spd_lsp.evaluation.beam_search import beam
from spd_lsp.settings import Settings
from tests.conftest import VOCABULARY, TinyModel
from tests.decoding.test_superposed import Counts, SelectingModel

PROMPT = [1, 2, 3]


def nothing():
    pass


def at_three(ids):
    return ids[-1] == 3


def never(ids):
    return False


def of(p, *ids):
    return Draft(ids, math.log(p))


def ids_of(held):
    return [[draft.ids for draft in one.members] for one in held]


CASES = {
    "seed": st.integers(0, 10_000),
    "k": st.integers(1, 6),
    "tau": st.sampled_from([0.5, 1.0, 3.0]),
    "stop": st.sampled_from([at_three, never]),
    "asks": st.booleans(),
    "rule": st.sampled_from(["linear", "paper"]),
    "ranking": st.sampled_from(["mean", "probability"]),
}


def case(seed, k, tau, stop, asks, rule, ranking, reset_every=0):
    """Settings with every token a candidate, so that all ways choose among the same."""
    chosen = Settings(
        drafts=k,
        temperature=tau,
        max_tokens=7,
        candidates=VOCABULARY,
        interpolation=rule,
        ranking=ranking,
        reset_every=reset_every,
    )
    return DecodingRequest(PROMPT, stop, PROMPT, Counts(seed) if asks else None), chosen


def same(found, expected):
    assert [draft.ids for draft in found.best] == [draft.ids for draft in expected.best]
    assert [draft.score for draft in found.best] == pytest.approx([draft.score for draft in expected.best])
    assert (found.passes, found.rows, found.longest) == (expected.passes, expected.rows, expected.longest)


@hypothesis_settings(deadline=None, max_examples=40)
@given(**CASES, reset_every=st.sampled_from([0, 2, 3]))
def test_one_stream_is_superposed_decoding(seed, **drawn):
    start, chosen = case(seed, **drawn)
    found = superpose_streams(TinyModel(seed), start, replace(chosen, streams=1), nothing)
    same(found, superpose(TinyModel(seed), start, chosen))


@hypothesis_settings(deadline=None, max_examples=40)
@given(**CASES)
def test_as_many_streams_as_drafts_are_beam_search(seed, **drawn):
    start, chosen = case(seed, **drawn)
    both = start.interpolation is not None and chosen.interpolation == "linear"
    assume(
        both or chosen.ranking == "mean"
    )  # else beam search looks at more first tokens that end a draft at once
    found = superpose_streams(TinyModel(seed), start, replace(chosen, streams=chosen.drafts), nothing)
    same(found, beam(TinyModel(seed), start, chosen, nothing))


@given(**CASES, g=st.integers(1, 3))
@hypothesis_settings(max_examples=40, deadline=None)
def test_streams_are_the_same_where_the_device_selects_logits(seed, g, **drawn):
    start, chosen = case(seed, **drawn)
    chosen = replace(chosen, streams=g, candidates=4)
    found, expected = (
        superpose_streams(model(seed), start, chosen, nothing) for model in (SelectingModel, TinyModel)
    )
    same(found, expected)
    assert (found.passes, found.rows) == (expected.passes, expected.rows)


def test_a_reset_goes_on_with_the_best_draft_alone_in_a_row_of_its_own():
    chosen = Settings(drafts=3, streams=2, max_tokens=8, reset_every=3)
    model = TinyModel(5)
    found = superpose_streams(model, DecodingRequest(PROMPT, never), chosen, nothing)
    assert len({draft.ids[:6] for draft in found.best}) == 1
    assert (found.passes, found.rows) == (model.passes, model.rows + 2) == (8, 2 * 5 + 2)


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_every_token_takes_one_pass_of_at_most_so_many_rows(most):
    model = TinyModel(2)
    found = superpose_streams(
        model, DecodingRequest(PROMPT, never), Settings(drafts=5, streams=most, max_tokens=8), nothing
    )
    assert found.passes == model.passes == found.longest == 8
    assert found.rows == model.rows == most * 7


class Watched(TinyModel):
    """Remembers what each row has read: mixtures as sets of tokens."""

    def prefill(self, ids, check=nothing):
        self.pasts, self.seen = [()], []
        return super().prefill(ids, check)

    def step_rows(self, rows, parents):
        self.pasts = [(*self.pasts[parent], set(ids)) for (ids, _), parent in zip(rows, parents, strict=True)]
        self.seen.append(self.pasts)
        return super().step_rows(rows, parents)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("most", [2, 3])
def test_a_draft_goes_on_from_a_row_that_has_read_all_of_it(seed, most):
    model = Watched(seed)
    chosen = Settings(drafts=5, streams=most, max_tokens=8, temperature=3.0)
    found = superpose_streams(model, DecodingRequest(PROMPT, never), chosen, nothing)
    for draft in found.best:
        pasts = model.seen[-1]
        assert any(all(token in read for token, read in zip(draft.ids, past)) for past in pasts)  # noqa: B905
    assert all(len(pasts) <= most for pasts in model.seen)


def test_drafts_follow_their_parents_and_never_join_across_rows():
    held = [Stream([of(0.5, 4), of(0.1, 5)], 0), Stream([of(0.3, 6)], 1)]
    found = regroup([of(0.2, 6, 7), of(0.19, 5, 7), of(0.18, 4, 7), of(0.1, 6, 8)], held)
    assert [(ids, one.row) for ids, one in zip(ids_of(found), found, strict=True)] == [
        ([(6, 7), (6, 8)], 1),
        ([(5, 7), (4, 7)], 0),
    ]


def test_the_draft_that_gains_most_by_it_is_read_alone():
    together = [Stream([of(0.5, 4), of(0.3, 5), of(0.01, 6)], 0)]
    assert ids_of(split_streams(together, 2)) == [[(4,)], [(5,), (6,)]]
    assert ids_of(split_streams(together, 9)) == [[(4,)], [(5,)], [(6,)]]
    unlike = [Stream([of(0.6, 4), of(0.01, 5)], 0), Stream([of(0.3, 6), of(0.29, 7)], 1)]
    assert ids_of(split_streams(unlike, 3)) == [[(4,), (5,)], [(6,)], [(7,)]]
    assert split_streams(unlike, 1) == unlike  # rows that differ cannot be joined


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=8))
def test_own_share_is_between_the_mean_and_the_whole(scores):
    p = np.exp(scores)
    assert p.mean() - 1e-12 <= own_share(scores) <= p.sum() + 1e-12

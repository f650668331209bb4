"""Drafts in order, and when nothing can change it any more."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.decoding.superposed import Draft, is_done, rank_drafts, ranking_score

ENDS = {10: "", 11: "", 12: " "}  # two ways to end a line, and one that reads otherwise


def text(ids):
    return "".join(ENDS.get(i, chr(97 + i)) for i in ids)


def of(p, *ids):
    return Draft(ids, math.log(p))


def test_drafts_that_read_the_same_are_one_by_probability():
    found = rank_drafts([of(0.25, 2, 10), of(0.2, 1, 10), of(0.1, 1, 11)], "probability", text)
    assert [(draft.ids, pytest.approx(math.exp(draft.score))) for draft in found] == [
        ((1, 10), 0.3),
        ((2, 10), 0.25),
    ]


def test_what_others_add_is_told_apart():
    (found,) = rank_drafts([of(0.2, 1, 10), of(0.1, 1, 11), of(0.1, 1, 10, 10)], "probability", lambda ids: "same")
    assert math.exp(found.score) == pytest.approx(0.4)
    assert math.exp(found.score - found.merged_score) == pytest.approx(0.2)


def test_by_mean_every_draft_stays_for_itself_and_certain_tokens_help():
    short, long = of(0.5, 1, 10), of(0.4, 1, 2, 3, 4, 10)
    assert rank_drafts([short, long], "mean", text) == [long, short]
    assert rank_drafts([short, long], "probability", text) == [short, long]


drafts = st.lists(
    st.tuples(st.lists(st.integers(0, 3), max_size=3), st.integers(10, 12), st.floats(0.001, 0.05)), max_size=12
)


@given(drafts, st.integers(0, 12))
def test_probability_is_kept_and_it_does_not_matter_when_drafts_are_added(found, cut):
    found = [of(p, *ids, end) for ids, end, p in found]
    at_once = rank_drafts(found, "probability", text)
    assert sum(math.exp(draft.score) for draft in at_once) == pytest.approx(sum(math.exp(d.score) for d in found))
    assert len({text(draft.ids) for draft in at_once}) == len(at_once)
    in_turn = rank_drafts([*rank_drafts(found[:cut], "probability", text), *found[cut:]], "probability", text)
    assert {text(draft.ids): pytest.approx(draft.score) for draft in at_once} == {
        text(draft.ids): draft.score for draft in in_turn
    }


def test_settled_when_none_that_goes_on_can_be_among_the_k():
    finished = [of(0.4, 1, 10), of(0.2, 2, 10)]
    assert not is_done([of(0.25, 3)], finished, 2, "probability")
    assert is_done([of(0.25, 3)], finished, 1, "probability")
    assert is_done([of(0.15, 3)], finished, 2, "probability")
    assert not is_done([of(0.15, 3)], finished, 3, "probability")
    assert is_done([], finished, 3, "probability")
    assert not is_done([of(0.5, 3)], [of(0.2, 2, 10)], 1, "mean")  # .5 a token against .447


@pytest.mark.parametrize(("ranking", "shown"), [("mean", 0.5), ("probability", 0.25)])
def test_worth_is_what_a_person_is_shown(ranking, shown):
    assert math.exp(ranking_score(of(0.25, 1, 10), ranking)) == pytest.approx(shown)

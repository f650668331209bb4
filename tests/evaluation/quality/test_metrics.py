"""Metrics say what their definitions say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.ranking import Completion
from spd_lsp.evaluation.quality.metrics import (
    best_similarity,
    edit_similarity,
    exact_match,
    type_line,
)
from spd_lsp.extras import remedy_for

DRAFTS = ["foo(a)", "foo(b)", "bar"]


def test_exact_match_looks_at_the_first_k_only():
    assert exact_match(DRAFTS, "foo(b)", 1) == (0, 1)
    assert exact_match(DRAFTS, "foo(b)", 3) == (1, 1)
    assert exact_match([], "x", 3) == (0, 1)


def test_edit_similarity_is_of_the_best_of_k():
    assert best_similarity(["xyz", "abd"], "abc", 2) == (pytest.approx(2 / 3), 1)
    assert edit_similarity("", "") == 1
    assert edit_similarity("", "ab") == 0
    assert edit_similarity("abc", "abd") == pytest.approx(2 / 3)
    assert edit_similarity("flaw", "lawn") == 0.5  # one letter goes, one comes


def test_without_rapidfuzz_one_is_told_how_to_install_it():
    assert "spd-lsp[bench]" in remedy_for("rapidfuzz")


def offered(*texts: str) -> list[Completion]:
    return [Completion(text, 0.0, ends=False) for text in texts]


def test_typing_without_help_costs_every_character():
    assert type_line("abcd", lambda written: []).keystrokes == 4


def test_accepting_costs_one_and_a_step_down_one_more():
    typed = type_line("abcd", lambda written: offered("x", "abc") if not written else [])
    assert (typed.keystrokes, typed.characters, typed.accepted, typed.requests) == (3, 4, 1, 2)


def test_a_draft_that_saves_nothing_is_not_accepted():
    assert type_line("ab", lambda written: offered("x", "y", "ab") if not written else []).accepted == 0


@pytest.mark.parametrize(("drafts", "most", "asked"), [
    (["abXY"], 1, ["", "abc"]),  # a draft that typing goes on with stays offered
    (["abXY", "aXYZ"], 2, ["", "ab", "abc"]),  # another takes the place of one that was typed otherwise
    (["aXYZ", "abXY"], 2, ["", "ab", "abc"]),  # as of the best one
    (["abXY", "abZ"], 3, ["", "a", "ab", "abc"]),  # or a free place
    (["abXY", "abZ", "abW", "aV"], 4, ["", "abc"]),  # three are enough
])  # fmt: skip
def test_drafts_that_typing_goes_on_with_stay_offered_and_others_are_asked_for(drafts, most, asked):
    requests = []

    def complete(written):
        requests.append(written)
        return offered(*(draft[len(written) :] for draft in drafts if draft.startswith(written)))

    assert type_line("abcd", complete, most).keystrokes == 4
    assert requests[: len(asked)] == asked


def test_the_best_draft_stays_first_while_it_is_typed_along_with():
    drafts = {"": ["abcdX", "b"], "a": ["bcd", "bX"]}
    typed = type_line("abcd", lambda written: offered(*drafts.get(written, [])), 2)
    assert (typed.keystrokes, typed.accepted) == (3, 1), "`bcd` is the second"
    assert typed.requests == 2


def test_the_draft_that_saves_most_is_taken():
    assert type_line("abcdef", lambda written: offered("ab", "abcdef") if not written else []).keystrokes == 2


@given(st.text("ab ", min_size=1, max_size=12), st.lists(st.text("ab ", min_size=1, max_size=5), max_size=3))
def test_help_never_costs_more_than_typing(target, drafts):
    typed = type_line(target, lambda written: offered(*drafts))
    assert 1 <= typed.keystrokes <= typed.characters == len(target)

"""Typing a line costs what is typed and accepted, and asks when the product asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.ranking import Completion
from spd_lsp.evaluation.quality.run import type_line


def offered(*texts: str) -> list[Completion]:
    return [Completion(text, 0.0, ends=False) for text in texts]


def test_typing_without_help_costs_every_character():
    assert type_line("abcd", lambda written: []).keystrokes == 4


def test_accepting_costs_one_and_a_step_down_one_more():
    typed = type_line("abcd", lambda written: offered("x", "abc") if not written else [])
    assert (typed.keystrokes, typed.characters, typed.accepted, typed.requests) == (3, 4, 1, 2)


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


@given(st.text("ab ", min_size=1, max_size=12), st.lists(st.text("ab ", min_size=1, max_size=5), max_size=3))
def test_help_never_costs_more_than_typing(target, drafts):
    typed = type_line(target, lambda written: offered(*drafts))
    assert 1 <= typed.keystrokes <= typed.characters == len(target)

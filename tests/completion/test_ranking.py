"""What is said of a completion: more for more evidence, and about what was measured."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.index.suffix_array import Occurrence
from spd_lsp.completion.ranking import (
    WITH_NGRAMS,
    Completion,
    Match,
    at_most_one_right,
    calibrate,
    choose_completions,
    rank_candidates,
)

PROBABILITY = st.floats(0, 1)
POSITIVE = st.integers(1, 40)


@given(POSITIVE, POSITIVE, st.integers(0, 40), st.floats(0.02, 0.5))
def test_a_better_match_makes_a_completion_likelier(length: int, count: int, others: int, p: float):
    match = Match(length, count, count + others, 1)
    said = calibrate(p, match, WITH_NGRAMS)
    assert 0 < said < 1
    assert calibrate(1.5 * p, match, WITH_NGRAMS) > said
    assert calibrate(0.0, match, WITH_NGRAMS) <= said
    assert calibrate(p, replace(match, length=length + 1), WITH_NGRAMS) > said
    assert calibrate(p, replace(match, places=match.places + 1), WITH_NGRAMS) < said


@given(st.lists(PROBABILITY, max_size=8))
def test_at_most_one_completion_of_a_place_is_right(p: list[float]):
    best_first = sorted(p, reverse=True)
    lowered = at_most_one_right(best_first)
    assert lowered[:1] == best_first[:1]
    assert sum(lowered) <= 1 + 1e-9
    assert all(0 <= one <= before for one, before in zip(lowered, best_first, strict=True))


def test_what_saves_no_more_than_a_step_down_the_list_gives_way_to_what_does():
    texts = {"first(argument)": 0.5, "ab": 0.3, "another(x)": 0.02}
    drafts = [Completion(text, p, ends=False) for text, p in texts.items()]
    chosen = choose_completions(drafts, {"first(": 0.5}, {}, "", 2)
    assert [one.text for one in chosen] == ["first(argument)", "another(x)"]


def test_of_many_copies_behind_the_same_match_the_most_frequent_are_kept():
    rare = [(Occurrence(9, number, (number,)), f"rare{number}") for number in range(10)]
    often = [(Occurrence(9, document, (99,)), "often") for document in (20, 21)]
    ranked = rank_candidates([], [*rare, *often], WITH_NGRAMS, lambda text: True)
    assert len(ranked) < 11 and "often" in [one.text for one in ranked]

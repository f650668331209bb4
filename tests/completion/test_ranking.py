"""What is said of a completion: more for more evidence, and about what was measured."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.ranking import WITH_NGRAMS, Match, at_most_one_right, calibrate

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

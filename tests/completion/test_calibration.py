"""What is said of a draft: more for likelier ones, less for later ones, and about what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.calibration import MODEL_ALONE, WITH_NGRAMS, Calibration, at_most_one_right, calibrate

PROBABILITY = st.floats(0, 1)
ANY = st.sampled_from([*WITH_NGRAMS.values(), *MODEL_ALONE.values()])


@given(PROBABILITY, PROBABILITY, st.booleans(), ANY)
def test_likelier_is_never_less(p: float, q: float, first: bool, by: Calibration):
    low, high = (calibrate(one, by, first=first) for one in sorted((p, q)))
    assert 0 <= low <= high <= 1


@given(st.floats(0.01, 1))  # below, both are at most one in forty
def test_a_later_draft_beside_ngrams_is_less(p: float):
    assert calibrate(p, WITH_NGRAMS[False], first=False) <= calibrate(p, WITH_NGRAMS[False], first=True)


# Parts of the drafts of an evaluation by their probability: its mean, and the share of them that was right.
@pytest.mark.parametrize(("p", "right", "first"), [
    (0.006, 0.019, True), (0.030, 0.089, True), (0.132, 0.165, True), (0.289, 0.462, True), (0.699, 0.829, True),
    (0.002, 0.010, False), (0.014, 0.019, False), (0.043, 0.045, False), (0.105, 0.102, False),
])  # fmt: skip
def test_it_is_near_what_was_measured(p: float, right: float, first: bool):
    assert calibrate(p, WITH_NGRAMS[False], first=first) == pytest.approx(right, abs=0.07)


@given(st.lists(PROBABILITY, min_size=1, max_size=8))
def test_at_most_one_text_of_a_place_is_right(p: list[float]):
    first, *later = at_most_one_right(p)
    assert first == p[0]
    assert first + sum(later) <= 1 + 1e-9
    assert all(0 <= one <= min(q, first) for one, q in zip(later, p[1:], strict=True))


def test_a_likely_first_draft_and_a_later_one():
    assert calibrate(0.15, WITH_NGRAMS[False], first=True) == pytest.approx(0.24, abs=0.01)
    assert calibrate(0.15, WITH_NGRAMS[False], first=False) == pytest.approx(0.12, abs=0.01)

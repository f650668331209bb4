"""What is said of a draft: more for likelier ones, less for later ones, and about what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.confidence import share_right

PROBABILITY = st.floats(0, 1)


@given(PROBABILITY, PROBABILITY, st.booleans(), st.booleans())
def test_likelier_is_never_less(p: float, q: float, first: bool, ngrams: bool):
    low, high = (share_right(one, first=first, ngrams=ngrams) for one in sorted((p, q)))
    assert 0 <= low <= high <= 1


@given(st.floats(1e-5, 1))
def test_a_later_draft_beside_ngrams_is_less(p: float):
    assert share_right(p, first=False, ngrams=True) <= share_right(p, first=True, ngrams=True)


# Parts of the drafts of an evaluation by their probability: its mean, and the share of them that was right.
@pytest.mark.parametrize(("p", "right", "first"), [
    (0.005, 0.104, True), (0.035, 0.155, True), (0.157, 0.363, True), (0.532, 0.819, True),
    (0.002, 0.032, False), (0.010, 0.038, False), (0.032, 0.068, False), (0.099, 0.118, False),
])  # fmt: skip
def test_it_is_near_what_was_measured(p: float, right: float, first: bool):
    assert share_right(p, first=first, ngrams=True) == pytest.approx(right, abs=0.06)


def test_the_example():
    assert share_right(0.15, first=True, ngrams=True) == pytest.approx(0.37, abs=0.01)
    assert share_right(0.15, first=False, ngrams=True) == pytest.approx(0.12, abs=0.01)

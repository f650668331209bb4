"""Repetition and Self-BLEU."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.evaluation.paper.diversity import bleu, distinct_share, measures_of, self_bleu

IDS = st.lists(st.integers(0, 5), min_size=1, max_size=12)


def test_uniqueness_is_the_share_of_different_ngrams() -> None:
    assert distinct_share([5, 7, 5, 7], 2) == pytest.approx(2 / 3)
    assert distinct_share([1, 2, 3], 1) == 1
    assert math.isnan(distinct_share([1], 2))


def test_bleu_of_a_reference_itself_is_one() -> None:
    assert bleu([1, 2, 3, 4, 5], [[9, 9], [1, 2, 3, 4, 5]]) == pytest.approx(1)


def test_bleu_worked_by_hand() -> None:
    """Precisions 4/5, 2/4, 1/3 and nothing in 2 at the highest order; no brevity penalty."""
    found = bleu([1, 2, 3, 7, 5], [[1, 2, 3, 4, 5]])
    assert found == pytest.approx((4 / 5 * 2 / 4 * 1 / 3 * 0.1 / 2) ** 0.25)


def test_words_repeated_count_as_often_as_one_reference_has_them() -> None:
    """Papineni et al.: `the the the the the the the` against `the cat is on the mat` has 2 of 7 unigrams."""
    found = bleu([1, 1, 1, 1], [[1, 2, 3, 4, 1, 5]])
    short = math.exp(1 - 6 / 4)
    assert found == pytest.approx(short * (2 / 4 * 0.1 / 3 * 0.1 / 2 * 0.1 / 1) ** 0.25)


@given(IDS, st.lists(IDS, min_size=1, max_size=3))
def test_bleu_is_a_share(candidate: list[int], references: list[list[int]]) -> None:
    assert 0 <= bleu(candidate, references) <= 1 + 1e-9


def test_equal_drafts_are_as_alike_as_can_be() -> None:
    assert self_bleu([[1, 2, 3, 4, 5]] * 3) == pytest.approx(1)
    assert self_bleu([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]]) > self_bleu([[1, 2, 3, 4, 5], [6, 7, 8, 9, 0]])
    assert math.isnan(self_bleu([[1, 2]]))


def test_a_place_is_described_by_all_measures() -> None:
    assert measures_of([[1, 1, 1], [1, 2, 3]]) == pytest.approx([(1 / 3 + 1) / 2, (1 / 2 + 1) / 2, 1, self_bleu(
        [[1, 1, 1], [1, 2, 3]])])  # fmt: skip

"""What numpy says of tables is what dictionaries say of the text they were counted from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from ngram_builders.ngrams import prune
from ngram_builders.table import numpy_query
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.pools import Case, cases
from tests.ngram_builders.reference import run_of_texts, write_texts

TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 2, 0], [3, 1, 2, 0], [0]]
COLUMNS = build_columns(run_of_texts(TEXTS), 4)


@pytest.mark.slow
@given(case=cases())
@settings(max_examples=300, deadline=None)
def test_queries_equal_those_by_dictionaries(case: Case) -> None:
    pools = case.columns()
    p, matched = numpy_query.probabilities(pools, case.weights, case.contexts, case.candidates)
    expected_p, expected_matched = case.mean()
    np.testing.assert_array_equal(matched, expected_matched)
    np.testing.assert_array_equal(p, expected_p)
    assert numpy_query.successors(pools, case.contexts, case.n).tolist() == case.successors()


def test_a_worked_example() -> None:
    """After 1 came 2 four times and nothing else, after 1 2: 3 twice, 0 and 2 once each."""
    p, matched = numpy_query.probabilities(
        [[COLUMNS]], [1.0], np.array([[-1, 1, 2], [-1, -1, 1]]), np.array([3, 2, 9])
    )
    assert p.shape == (2, 8, 3)
    assert p[0, 1].tolist() == [2 / 4, 1 / 4, 0]
    assert p[1, 0].tolist() == [0, 1, 0]
    assert matched[:, :3].tolist() == [[1, 1, 0], [1, 0, 0]]
    assert numpy_query.successors([[COLUMNS]], np.array([[-1, 1, 2]]), 2).tolist() == [0, 3]


def test_pruned_ngrams_still_count_in_the_total_and_are_never_proposed() -> None:
    """OTHER is no token: not even a candidate of that number hears of it."""
    pruned = build_columns(prune(run_of_texts(TEXTS), {3: 2}, 4), 4)
    contexts = np.array([[-1, 1, 2]])
    p, matched = numpy_query.probabilities([[pruned]], [1.0], contexts, np.array([3, 2, 0, 65_535]))
    assert p[0, 1].tolist() == [2 / 4, 0, 0, 0]
    assert matched[0, 1] == 1
    assert numpy_query.successors([[pruned]], contexts, 9).tolist() == [3]


def test_where_only_other_is_left_a_shorter_context_is_used() -> None:
    pruned = build_columns(prune(run_of_texts(TEXTS), {3: 2}, 4), 4)
    kept = run_of_texts([[1, 2, 3]] * 2, orders=(3,))
    taken = build_columns(replace(kept, counts=-kept.counts), 4)
    p, matched = numpy_query.probabilities([[pruned, taken]], [1.0], np.array([[-1, 1, 2]]), np.array([3]))
    assert (p[0, 1, 0], matched[0, 1]) == (0, 1)
    assert numpy_query.successors([[pruned, taken]], np.array([[-1, 1, 2]]), 1).tolist() == [0]


@pytest.mark.parametrize("repeats", [254, 255, 256, 65_535, 65_536, 70_000])
def test_large_counts_are_exact(tmp_path, repeats) -> None:
    write_texts(tmp_path / "t.ngt", [[1, 2]] * repeats + [[1, 3]])
    p, _ = numpy_query.probabilities(
        [[Table.open(tmp_path / "t.ngt").columns]], [1.0], np.array([[1]]), np.array([3, 2])
    )
    assert p[0, 0].tolist() == [1 / (repeats + 1), repeats / (repeats + 1)]


def test_a_pool_with_weight_zero_is_skipped() -> None:
    p, matched = numpy_query.probabilities([[COLUMNS], [COLUMNS]], [0.0, 0.5], np.array([[1]]), np.array([2]))
    assert (p[0, 0, 0], matched[0, 0]) == (1, 0.5)

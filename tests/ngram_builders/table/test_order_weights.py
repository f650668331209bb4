"""Weights are fitted on text that the counts have not seen, and make it likelier."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from ngram_builders.ngrams import ORDERS, count_streams
from ngram_builders.table.order_weights import (
    Observations,
    fit_order_weights,
    measure_perplexity,
    mix_probabilities,
    observe_stream,
    perplexity,
)
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.reference import Documents, arrays, documents, run_of_texts

VOCABULARY = 500
BASE = 1 / VOCABULARY


def code_like(documents: int, seed: int = 0) -> list[np.ndarray]:
    """Streams that share phrases, as the files of a repository do."""
    rng = np.random.default_rng(seed)
    phrases = np.random.default_rng(7).integers(1, VOCABULARY, (80, 8))
    return [np.concatenate(([0], phrases[rng.zipf(1.5, 60) % 80].ravel(), [0])) for _ in range(documents)]


def columns(streams: list[np.ndarray]):
    return build_columns(count_streams(streams, orders=ORDERS, vocab_size=VOCABULARY), VOCABULARY)


def observations(rows: list[tuple[list[float], list[float]]]) -> Observations:
    padded = [[np.pad(part, (0, 8 - len(part))) for part in row] for row in rows]
    return Observations(np.array([p for p, _ in padded]), np.array([matched for _, matched in padded]))


@settings(deadline=None, max_examples=20)
@given(texts=documents())
def test_observations_are_the_counts_of_each_next_token(texts: Documents) -> None:
    """By a plain loop over the bigrams."""
    run = run_of_texts(texts)
    for stream in arrays(texts):
        found = observe_stream([[build_columns(run, 4)]], [1.0], stream)
        assert len(found.p) == len(stream) - 1
        for place, (left, right) in enumerate(itertools.pairwise(stream)):
            pairs = [pair for text in arrays(texts) for pair in itertools.pairwise(text)]
            after = [next_ for first, next_ in pairs if first == left]
            assert found.p[place, 0] == pytest.approx(after.count(right) / len(after))


def test_an_order_that_is_always_right_gets_all_weight_but_the_prior() -> None:
    found = observations([([0.0, 1.0], [1.0, 1.0])] * 2_000)
    weights = fit_order_weights(found, BASE)
    assert weights[1][1] > 0.97
    assert weights[1][2:] == (0.0,) * 6  # orders above the highest seen have no weight


def test_the_fitted_weights_are_a_local_optimum() -> None:
    streams = code_like(12)
    found = observe_stream([[columns(streams[1:])]], [1.0], streams[0])
    weights = fit_order_weights(found, BASE)
    best = perplexity(mix_probabilities(found, BASE, weights))
    for m, row in enumerate(weights):
        for n in range(m + 1):
            moved = [list(one) for one in weights]
            moved[m] = [w * 0.9 for w in row]
            moved[m][n] += 0.05
            assert perplexity(mix_probabilities(found, BASE, tuple(map(tuple, moved)))) > best - 0.02


def test_a_document_is_predicted_without_its_own_counts() -> None:
    """Random text that occurs once: nobody can predict it, and only a table that still counts it would."""
    rng = np.random.default_rng(3)
    streams = [rng.integers(1, VOCABULARY, 400) for _ in range(5)]
    assert measure_perplexity(columns(streams), streams, ORDERS)["alone"] > VOCABULARY / 3


def test_perplexity_is_measured_with_and_without_other_tables() -> None:
    streams = code_like(6)
    found = measure_perplexity(columns(streams[:3]), streams[:3], ORDERS, {"python": columns(streams[3:])})
    assert set(found) == {"alone", "python only", "with python"}
    assert found["with python"] < found["alone"]


def test_no_more_text_is_read_than_requested() -> None:
    streams = iter(code_like(6))
    assert measure_perplexity(columns(code_like(6)), streams, ORDERS, max_positions=1_000)
    assert len(list(streams)) == 3  # 481 positions each


def test_with_too_little_text_nothing_is_measured() -> None:
    assert measure_perplexity(columns(code_like(1)), [], ORDERS) == {}
    assert measure_perplexity(columns(code_like(1)), code_like(1), ORDERS) == {}

"""Weights are fitted on text that the counts have not seen, and make it likelier."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.ngrams import ORDERS, count_streams
from ngram_builders.table.order_weights import (
    Observations,
    OrderWeights,
    expand_order_weights,
    fit_order_weights,
    measure_perplexity,
    mix_probabilities,
    observe_stream,
    perplexity,
)
from ngram_builders.table.writer import build_columns
from spd_lsp.ngrams.mixture import scale_odds
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


def test_orders_without_observations_keep_their_initial_weights() -> None:
    start = tuple(tuple(0.1 if n <= m else 0.0 for n in range(8)) for m in range(8))
    weights = fit_order_weights(observations([([0.9], [1.0])] * 2_000), BASE, start)
    assert weights[0][0] > 0.9
    assert weights[1:] == pytest.approx(np.array(start[1:]))


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


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(0.01, 4), min_size=4, max_size=4), st.floats(0.05, 0.95))
def test_odds_scale_the_orders_against_the_base(factors: list[float], weight: float) -> None:
    found = observations([([0.6], [1.0])] * 4)
    rows = tuple(map(tuple, expand_order_weights(((weight,),))[1:].tolist()))
    mixed = mix_probabilities(found, 0.2, rows, np.array(factors))
    for factor, p in zip(factors, mixed, strict=True):
        [scaled] = scale_odds(np.array([[weight]]), factor)
        assert p == pytest.approx((1 - scaled[0]) * 0.2 + scaled[0] * 0.6)
        assert scaled[0] / (1 - scaled[0]) == pytest.approx(factor * weight / (1 - weight))


def test_weights_that_are_fitted_with_odds_are_best_with_them() -> None:
    """No step away from them makes the text likelier, and they suit it better than those fitted without."""
    rng = np.random.default_rng(3)
    right, doubt = rng.random(6_000) < 0.5, rng.random(6_000)
    p_model = np.where(rng.random(6_000) < doubt, 0.05, 0.8)
    found = observations([([0.9 * one + 0.05], [1.0]) for one in right])
    weights, without = fit_order_weights(found, p_model, odds=doubt), fit_order_weights(found, p_model)

    def fits(rows: OrderWeights) -> float:
        return perplexity(mix_probabilities(found, p_model, rows, doubt))

    for change in (0.97, 1.03):
        moved = np.array(weights) * change
        assert fits(tuple(map(tuple, moved.tolist()))) > fits(weights) - 1e-3
    assert fits(weights) < fits(without)

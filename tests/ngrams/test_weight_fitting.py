"""Weights beside a model follow how good the model is and how well the table knows its own files."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_builders.ngrams import ORDERS, count_streams
from ngram_builders.table.writer import build_columns
from spd_lsp.ngrams.weight_fitting import MIN_FIT_TOKENS, fit_weights, observe_documents

VOCABULARY = 500


class Oracle:
    """A model that gives each token that really came the same probability, and counts how often it was asked.

    It is never sure of a token, unless told to be of those at odd places.
    """

    def __init__(self, p, sure=0.0):
        self.p = p
        self.sure = sure
        self.read = []

    def token_probabilities(self, ids):
        self.read.append(len(ids))
        top = np.where(np.arange(1, len(ids)) % 2, self.sure, 0.0)
        return np.stack([np.full(len(ids) - 1, self.p), top])


def streams(documents, phrases=80, seed=0):
    """Documents that share phrases, as the files of a repository do."""
    known = np.random.default_rng(7).integers(1, VOCABULARY, (phrases, 8))
    rng = np.random.default_rng(seed)
    return [np.concatenate(([0], known[rng.zipf(1.5, 40) % phrases].ravel(), [0])) for _ in range(documents)]


def fitted(model, documents, **options):
    table = build_columns(count_streams(documents, orders=ORDERS, vocab_size=VOCABULARY), VOCABULARY)
    return fit_weights([*observe_documents(model, [[table]], [0.7], documents, ORDERS, **options)])


def share_of_ngrams(found):
    return sum(found.weights[4])


def test_weights_are_those_of_places_where_the_model_is_sure_of_nothing():
    """Where it is sure, n-grams are held back when they serve as well: that is not held against them twice."""
    sometimes, never = (fitted(Oracle(0.3, sure), streams(12)) for sure in (0.9, 0.0))
    assert share_of_ngrams(sometimes) > share_of_ngrams(never)


def test_a_table_that_does_not_know_its_own_files_is_not_believed():
    """Random text repeats nowhere: without the document itself the table knows only chance."""
    rng = np.random.default_rng(2)
    found = fitted(Oracle(0.2), [rng.integers(1, VOCABULARY, 300) for _ in range(8)])
    assert found.weights[0][0] < 0.02
    assert found.model_alone == pytest.approx(5)
    assert found.fitted < found.shipped


def test_the_gain_is_told_on_text_the_weights_were_not_fitted_on():
    found = fitted(Oracle(0.05), streams(12))
    assert found.model_alone == pytest.approx(20)
    assert found.fitted < found.model_alone
    assert found.places == sum(len(stream) - 1 for stream in streams(12))


def test_too_little_text_gives_no_weights():
    assert fitted(Oracle(0.1), streams(1)) is None
    assert len(streams(1)[0]) < MIN_FIT_TOKENS

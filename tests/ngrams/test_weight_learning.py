"""What was accepted says how likely each weight of a table would have made it, all else as it was."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_builders.ngrams import ORDERS, count_streams
from ngram_builders.registry.learnt_weights import START, WEIGHTS, Learnt
from ngram_builders.table.writer import build_columns
from spd_lsp.ngrams.mixture import Mixture
from spd_lsp.ngrams.weight_learning import Evidence, Learnable

VOCABULARY = 30
BEFORE, ACCEPTED = [1, 2, 3], (4, 5, 6)


def columns(*texts):
    streams = [np.array([0, *ids, 0]) for ids in texts]
    return build_columns(count_streams(streams, orders=ORDERS, vocab_size=VOCABULARY), VOCABULARY)


def learn(table, said=None):
    """What is learnt of a table beside a folder's own when ACCEPTED is; the model said that there."""
    said = np.full(VOCABULARY, 1 / VOCABULARY, dtype=np.float32) if said is None else said
    mixture = Mixture([[columns([7, 8, 9])], [table]], (0.7, START)).watching()
    padded = [-1] * 8 + BEFORE
    for n in range(len(ACCEPTED)):
        mixture.mix_top(np.array([[*padded, *ACCEPTED[:n]][-8:]]), said, 30)
    evidence = Evidence(mixture, [Learnable(1, "/shop", "team")], BEFORE, lambda: ACCEPTED)
    lessons = [*filter(None, evidence.learn())]
    assert all((one.folder, one.table) == ("/shop", "team") for one in lessons)
    return lessons[0].learnt if lessons else Learnt(), mixture


def test_a_table_that_says_what_was_accepted_gains_weight_and_one_that_says_otherwise_loses_it():
    right, _ = learn(columns([1, 2, 3, 4, 5, 6]))
    wrong, _ = learn(columns([1, 2, 3, 9], [4, 9], [5, 9]))
    assert right.tokens == wrong.tokens == 3
    assert right.weight > START > wrong.weight
    assert learn(columns([11, 12, 13]))[0].tokens == 0  # what knows nothing like this is not judged by it


def test_where_the_model_is_sure_a_table_has_no_say():
    sure = np.full(VOCABULARY, 1e-9, dtype=np.float32)
    sure[4] = 1.0
    assert learn(columns([1, 2, 3, 9]), sure)[0].weight == pytest.approx(START, abs=0.01)


def test_likelihoods_are_those_of_the_mixture_with_each_weight():
    learnt, mixture = learn(columns([1, 2, 3, 4, 5, 8]))
    everywhere = np.full(VOCABULARY, 1 / VOCABULARY)
    for weight, found in zip(WEIGHTS, learnt.log_likelihoods, strict=True):
        other = Mixture(mixture.pools, (0.7, weight))
        histories = [[*BEFORE, *ACCEPTED[:n]] for n in range(3)]
        p = [other.mix([history], np.arange(VOCABULARY), everywhere)[0] for history in histories]
        assert found == pytest.approx(sum(np.log(row[token]) for row, token in zip(p, ACCEPTED, strict=True)))


def test_a_token_of_which_it_is_not_known_what_the_model_said_is_left_out():
    """As in the copies that no draft spelled."""
    mixture = Mixture([[columns([1, 2, 3, 4, 5, 6])]], (START,)).watching()
    evidence = Evidence(mixture, [Learnable(0, "/shop", "team")], BEFORE, lambda: ACCEPTED)
    assert not any(evidence.learn())

"""Beam search finds what a naive search finds, in k rows a pass."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.beam_search import beam, mix_rows
from spd_lsp.models.logits import log_softmax
from spd_lsp.settings import Settings
from tests.conftest import TinyModel

PROMPT = [1, 2]


def at_three(ids):
    return ids[-1] == 3


def never(ids):
    return False


def mean(draft):
    return draft[1] / len(draft[0])


def log_p(seed, ids, vocabulary, tau=1.0):
    """Logarithms of the next token's probabilities, everything read afresh."""
    return log_softmax(TinyModel(seed, vocabulary).prefill([*PROMPT, *ids]) / tau)


def naive_beam(seed, vocabulary, k, length, stop):
    live, finished = [((), 0.0)], []
    for _ in range(length):
        options = [
            ((*ids, token), score + logp)
            for ids, score in live
            for token, logp in enumerate(log_p(seed, ids, vocabulary))
        ]
        live = []
        for option in sorted(options, key=lambda option: -option[1]):
            if len(live) == k:
                break
            (finished if stop(option[0]) else live).append(option)
        finished = sorted(finished, key=mean, reverse=True)
        if not live or (len(finished) >= k and max(map(mean, live)) <= mean(finished[k - 1])):
            break
    return sorted([*finished[:k], *live], key=mean, reverse=True)[:k]


@hypothesis_settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), stop=st.sampled_from([at_three, never]))
def test_beam_search_equals_a_naive_one_that_reads_every_row_afresh(seed, k, stop):
    chosen = Settings(drafts=k, candidates=10, max_tokens=6, ranking="mean")
    found = beam(TinyModel(seed, 10), DecodingRequest(PROMPT, stop), chosen, lambda: None)
    expected = naive_beam(seed, 10, k, 6, stop)
    assert [draft.ids for draft in found.best] == [ids for ids, _ in expected]
    assert [draft.score for draft in found.best] == pytest.approx([score for _, score in expected])


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all_texts(seed):
    chosen = Settings(drafts=16, candidates=4, max_tokens=3)
    found = beam(TinyModel(seed, 4), DecodingRequest(PROMPT, never), chosen, lambda: None)
    every = {ids: sum(log_p(seed, ids[:at], 4)[ids[at]] for at in range(3)) for ids in product(range(4), repeat=3)}
    assert [draft.ids for draft in found.best] == sorted(every, key=lambda ids: -every[ids])[:16]


@pytest.mark.parametrize("seed", range(5))
def test_by_probability_a_wide_beam_finds_the_likeliest_texts_and_their_whole_probability(seed):
    """Texts end at 2 or 3, which read the same: nothing."""

    def ends(ids):
        return ids[-1] in (2, 3)

    def text(ids):
        return tuple(i for i in ids if i < 2)

    chosen = Settings(drafts=8, candidates=4, max_tokens=4)
    found = beam(TinyModel(seed, 4), DecodingRequest(PROMPT, ends, text_of=text), chosen, lambda: None)
    every = {}
    for length in range(4):
        for ids in product(range(2), repeat=length):
            p = np.exp(sum(log_p(seed, ids[:at], 4)[ids[at]] for at in range(length)))
            every[ids] = p * np.exp(log_p(seed, ids, 4)[[2, 3]]).sum()
    finished = [draft for draft in found.best if ends(draft.ids)]
    assert finished
    for draft in finished:
        assert np.exp(draft.score) == pytest.approx(every[text(draft.ids)])
    likeliest = sorted(every, key=lambda ids: -every[ids])
    assert [text(draft.ids) for draft in finished] == likeliest[: len(finished)]


class Bigrams:
    """Counts that know one thing: 5 follows 4."""

    def __call__(self, histories, candidates):
        return np.array([[float(h[-1] == 4 and c == 5) for c in candidates] for h in histories])

    def mix(self, histories, candidates, p):
        known = np.array([[h[-1] == 4] for h in histories])
        return np.where(known, 0.01 * p + 0.99 * self(histories, candidates), p)

    def successors(self, histories, n):
        return np.array([5])

    def mix_top(self, histories, p, n):
        candidates = np.union1d(np.argsort(-p)[:n], [5])
        return candidates, self.mix(histories, candidates, p[candidates])


def test_ngrams_speak_of_each_row_by_its_own_history():
    start = DecodingRequest(PROMPT, never, PROMPT, Bigrams())
    found = beam(TinyModel(2, 10), start, Settings(drafts=10, candidates=3, max_tokens=4), lambda: None)
    after_four = [
        draft.ids[at + 1] for draft in found.best for at in range(len(draft.ids) - 1) if draft.ids[at] == 4
    ]
    assert after_four
    assert after_four.count(5) / len(after_four) > 0.5


class KnowsToken4:
    """Says of token 4 that it follows, and of one beyond the vocabulary."""

    def __call__(self, histories, candidates):
        return np.tile(candidates == 4, (len(histories), 1)).astype(float)

    def mix(self, histories, candidates, p):
        return 0.5 * p + 0.5 * self(histories, candidates)

    def successors(self, histories, n):
        return np.array([4, 99])

    def mix_top(self, histories, p, n):
        raise AssertionError("of logits that all rows share")


def test_tokens_that_the_model_does_not_have_are_not_offered():
    """A table may name any: it takes logits [N, V] no further than V."""
    logits = np.array([[2.0, 1.0, 0.0, -1.0, -2.0, 0.5], [0.0, 1.0, 2.0, -1.0, 3.0, 0.5]])
    candidates, logp_f = mix_rows(
        logits, np.array([[1], [2]]), KnowsToken4(), Settings(candidates=3), [None, None]
    )
    assert 4 in candidates
    assert candidates.max() < 6
    assert logp_f.shape == (2, len(candidates))

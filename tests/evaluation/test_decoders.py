"""Decoders: all take and give the same, each costs what it says, and the baselines find what naive ones find."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spd_lsp.decoding.nucleus import TOP_P
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.decoders import DECODERS, beam
from spd_lsp.models.logits import log_softmax
from spd_lsp.settings import Settings
from tests.conftest import TinyModel, spelled
from tests.decoding.test_superposed import Counts

PROMPT = [1, 2]
every_decoder = pytest.mark.parametrize("name", sorted(DECODERS))


def never(ids):
    return False


def at_three(ids):
    return ids[-1] == 3


def nothing():
    pass


@every_decoder
def test_every_decoder_counts_its_passes_and_keeps_to_the_length(name):
    model = TinyModel(1)
    found = DECODERS[name](model, DecodingRequest(PROMPT, never), Settings(drafts=3, max_tokens=6), nothing)
    assert found.passes == model.passes
    assert found.rows in (model.rows, model.steps)
    assert 1 <= len(found.best) <= 3
    assert all(len(draft.ids) == 6 for draft in found.best)


@every_decoder
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", ["linear", "paper"])
@pytest.mark.parametrize("counts", [None, Counts(3)])
def test_every_decoder_spells_what_is_typed_over_several_tokens(name, seed, rule, counts):
    start = DecodingRequest(PROMPT, never, [2], counts, allowed=spelled)
    chosen = Settings(drafts=3, max_tokens=4, interpolation=rule)
    found = DECODERS[name](TinyModel(seed), start, chosen, nothing)
    assert all(draft.ids[0] == 11 or draft.ids[:2] in ((12, 13), (12, 14)) for draft in found.best)


def test_passes_and_positions_of_each():
    found = {
        name: decode(TinyModel(1), DecodingRequest(PROMPT, never), Settings(drafts=3, max_tokens=6), nothing)
        for name, decode in DECODERS.items()
    }
    assert {name: (drafts.passes, drafts.rows) for name, drafts in found.items()} == {
        "superposed": (6, 5),
        "greedy": (6, 5),
        "best-first": (12, 11),
        "nucleus": (6, 15),
        "nucleus-superposed": (18, 15),
        "sampled-resets": (6, 5),
        "beam": (6, 15),
    }


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
    found = beam(TinyModel(seed, 10), DecodingRequest(PROMPT, stop), chosen, nothing)
    expected = naive_beam(seed, 10, k, 6, stop)
    assert [draft.ids for draft in found.best] == [ids for ids, _ in expected]
    assert [draft.score for draft in found.best] == pytest.approx([score for _, score in expected])


@pytest.mark.parametrize("seed", range(5))
def test_by_probability_a_wide_beam_finds_the_likeliest_texts_and_their_whole_probability(seed):
    """Texts end at 2 or 3, which read the same: nothing."""

    def ends(ids):
        return ids[-1] in (2, 3)

    def text(ids):
        return tuple(i for i in ids if i < 2)

    chosen = Settings(drafts=8, candidates=4, max_tokens=4)
    found = beam(TinyModel(seed, 4), DecodingRequest(PROMPT, ends, text_of=text), chosen, nothing)
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
    found = beam(TinyModel(2, 10), start, Settings(drafts=10, candidates=3, max_tokens=4), nothing)
    after_four = [
        draft.ids[at + 1] for draft in found.best for at in range(len(draft.ids) - 1) if draft.ids[at] == 4
    ]
    assert after_four
    assert after_four.count(5) / len(after_four) > 0.5


@pytest.mark.parametrize("stop", [never, at_three])
@pytest.mark.parametrize("seed", range(5))
def test_every_sample_has_the_score_of_its_own_text(seed, stop):
    chosen = Settings(drafts=5, candidates=10, max_tokens=6)
    found = DECODERS["nucleus"](TinyModel(seed, 10), DecodingRequest(PROMPT, stop), chosen, nothing)
    for draft in found.best:
        rows = [log_softmax(TinyModel(seed, 10).prefill([*PROMPT, *draft.ids[:at]])) for at in range(6)]
        own = [row[token] for row, token in zip(rows, draft.ids, strict=False)]
        assert draft.score == pytest.approx(sum(own))
        assert len(draft.ids) == 6 or stop(draft.ids)


def test_samples_follow_the_distribution():
    chosen = Settings(drafts=16, candidates=10, max_tokens=1, temperature=5.0)
    p = np.exp(log_softmax(TinyModel(4, 10).prefill(PROMPT) / 5))
    order = np.argsort(-p)
    kept = order[: int(np.searchsorted(np.cumsum(p[order]), TOP_P)) + 1]
    found = DECODERS["nucleus"](TinyModel(4, 10), DecodingRequest(PROMPT, never), chosen, nothing)
    assert {draft.ids[0] for draft in found.best} <= set(kept.tolist())
    assert len(found.best) > 1


def test_finished_samples_leave_the_batch():
    model = TinyModel(1, 10)
    chosen = Settings(drafts=8, max_tokens=8, temperature=5.0)
    found = DECODERS["nucleus"](model, DecodingRequest(PROMPT, at_three), chosen, nothing)
    assert found.rows == model.rows < 8 * (found.passes - 1)

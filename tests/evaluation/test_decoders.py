"""Decoders: all take and give the same, each costs what it says, and the baselines find what naive ones find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spd_lsp.decoding.candidates import log_softmax
from spd_lsp.decoding.nucleus import sampled_drafts
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.decoders import DECODERS, beam
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
        "beam": (6, 15),
        "sampled-resets": (6, 5),
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


def test_each_sample_is_finished_by_superposed_drafts_with_one_first_token():
    start = DecodingRequest(PROMPT, never, PROMPT, Counts(3))
    runs = list(sampled_drafts(TinyModel(5), start, Settings(drafts=3, max_tokens=5), nothing, 9))
    firsts = [{draft.ids[0] for draft in run.best} for run in runs]
    assert all(len(first) == 1 for first in firsts) and len(set.union(*firsts)) > 1
    assert {len(run.best) for run in runs} == {3}

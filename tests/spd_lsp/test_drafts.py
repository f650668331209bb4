"""Superposed Decoding does what the paper says, at one pass per token."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spd_lsp.drafts import LOG_DELTA, Draft, Start, fuse, superpose, superposition, top
from spd_lsp.settings import Settings
from tests.conftest import VOCABULARY, TinyModel

STOP = 7  # an arbitrary token of the tiny vocabulary that ends a draft


def never(ids):
    return False


def at_stop(ids):
    return ids[-1] == STOP


class Counts:
    """A dictionary of bigram probabilities, a third of them unknown."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        known = random.random((VOCABULARY, VOCABULARY)) > 0.33
        self.table = random.random((VOCABULARY, VOCABULARY)) * known
        self.table[random.random(VOCABULARY) > 0.8] = 0.0  # contexts never seen

    def __call__(self, histories, candidates):
        return np.stack([self.table[history[-1]][candidates] for history in histories])

    def nest(self, histories, candidates, p):
        return 0.5 * p + 0.5 * self(histories, candidates)

    def successors(self, histories, n):
        return np.unique([np.argsort(-self.table[history[-1]])[:n] for history in histories])


def naive(model, prompt, settings, stop, history=(), counts=None):
    """The paper with dictionaries and loops: written from the formulas, one candidate at a time."""
    k, tau, alpha = settings.drafts, settings.temperature, settings.alpha

    def softmax(logits, ids):
        exps = {i: math.exp((logits[i] - max(logits[j] for j in ids)) / tau) for i in ids}
        return {i: e / sum(exps.values()) for i, e in exps.items()}

    def keep(options):
        live, done = [], []
        for ids, score in sorted(options.items(), key=lambda item: -item[1]):
            if len(live) < k:
                (done if stop(ids) else live).append((ids, score))
        return live, done

    def mean(draft):
        return draft[1] / len(draft[0])

    p = softmax(model.prefill(prompt), range(VOCABULARY))
    first = sorted(p, key=lambda i: -p[i])[: 2 * k]
    live, finished = keep({(i,): math.log(p[i]) for i in first})
    finished = finished[:k]
    for _ in range(settings.max_tokens - 1):
        if not live or (len(finished) == k and max(map(mean, live)) <= min(map(mean, finished))):
            break
        shares = [math.exp(score - live[0][1]) for _, score in live]
        gamma = [share / sum(shares) for share in shares]
        logits = model.step([ids[-1] for ids, _ in live], np.array(gamma))
        best = sorted(range(VOCABULARY), key=lambda i: -logits[i])[: settings.candidates]
        p = softmax(logits, best)
        options = {}
        for ids, score in live:
            known = {x: counts.table[ids[-1]][x] for x in best} if counts else dict(p)
            for x in best:
                if counts is None:
                    options[(*ids, x)] = score + math.log(p[x])
                elif any(known.values()) and known[x]:
                    p_f = p[x] ** (1 - alpha) * known[x] ** alpha
                    options[(*ids, x)] = score + math.log(p_f)
                elif not any(known.values()):
                    options[(*ids, x)] = score + (1 - alpha) * math.log(p[x]) + LOG_DELTA
        live, done = keep(options)
        finished = sorted([*finished, *done[:k]], key=lambda d: -mean(d))[:k]
    return sorted([*finished, *live], key=lambda d: -mean(d))[:k]


@hypothesis_settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 8),
    candidates=st.integers(2, 20),
    tau=st.sampled_from([0.3, 1.0, 2.0]),
    alpha=st.sampled_from([0.2, 0.54]),
    with_counts=st.booleans(),
)
def test_the_vectorised_step_equals_a_naive_loop(seed, k, candidates, tau, alpha, with_counts):
    chosen = Settings(
        drafts=k, candidates=candidates, temperature=tau, alpha=alpha, max_tokens=8, interpolation="paper"
    )
    counts = Counts(seed) if with_counts else None
    found = superpose(TinyModel(seed), Start([1, 2, 3], at_stop, [1, 2, 3], counts), chosen)
    expected = naive(TinyModel(seed), [1, 2, 3], chosen, at_stop, [1, 2, 3], counts)
    assert [draft.ids for draft in found.best] == [ids for ids, _ in expected]
    assert [draft.score for draft in found.best] == pytest.approx([score for _, score in expected])


@pytest.mark.parametrize("seed", range(10))
def test_one_draft_without_ngrams_is_greedy_decoding(seed):
    chosen = Settings(drafts=1, max_tokens=12)
    found = superpose(TinyModel(seed), Start([3, 1], at_stop), chosen)

    model, expected = TinyModel(seed), []
    logits = model.prefill([3, 1])
    while len(expected) < 12 and STOP not in expected:
        expected.append(int(np.argmax(logits)))
        logits = model.step(expected[-1:], np.ones(1))
    assert found.best[0].ids == tuple(expected)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("stop", [never, at_stop])
def test_passes_are_the_tokens_of_the_longest_draft_whatever_k_is(k, stop):
    model = TinyModel(4)
    seen = []

    def watched(ids):
        seen.append(len(ids))
        return stop(ids)

    found = superpose(model, Start([1, 2], watched), Settings(drafts=k, max_tokens=10))
    assert model.passes == found.passes == found.longest == max(seen) <= 10
    if stop is never:
        assert found.passes == max(len(draft.ids) for draft in found.best) == 10


@pytest.mark.parametrize("stopped_after", [0, 1, 4])
def test_a_cancelled_decoding_stops_within_one_pass(stopped_after):
    model = TinyModel()

    class Stopped(Exception):
        pass

    def check():
        if model.passes >= stopped_after:
            raise Stopped

    with pytest.raises(Stopped):
        superpose(model, Start([1, 2], never), Settings(max_tokens=10), check)
    assert model.passes == stopped_after


def test_the_same_input_gives_the_same_drafts():
    runs = [superpose(TinyModel(2), Start([5, 6], at_stop), Settings(drafts=5)) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("interpolation", ["paper", "nested"])
@pytest.mark.parametrize("seed", range(5))
def test_there_are_always_k_finite_and_different_drafts(seed, interpolation):
    chosen = Settings(drafts=6, candidates=6, max_tokens=6, interpolation=interpolation)
    found = superpose(TinyModel(seed), Start([1], at_stop, [1], Counts(seed)), chosen)
    assert len({draft.ids for draft in found.best}) == 6
    assert all(math.isfinite(draft.score) for draft in found.best)


def test_nested_drafts_may_hold_a_token_that_the_model_would_never_choose():
    counts = Counts(0)
    logits = TinyModel(1).prefill([1, 2])
    unlikely = int(np.argmin(logits))
    counts.table[2] = 0.0
    counts.table[2, unlikely] = 1.0

    def first_token(rule):
        chosen = Settings(interpolation=rule, drafts=1, candidates=3, max_tokens=1)
        return superpose(TinyModel(1), Start([1, 2], never, [2], counts), chosen).best[0].ids[0]

    assert first_token("nested") == unlikely
    assert first_token("paper") == int(np.argmax(logits))


@pytest.mark.parametrize("rule", ["nested", "paper"])
def test_with_ngrams_too_drafts_begin_with_an_allowed_token(rule):
    start = Start([1, 2], never, [2], Counts(3), np.array([11, 12]))
    found = superpose(TinyModel(), start, Settings(drafts=3, max_tokens=4, interpolation=rule))
    assert {draft.ids[0] for draft in found.best} <= {11, 12}


def test_drafts_begin_with_an_allowed_token_and_still_become_k():
    allowed = np.array([11])
    found = superpose(TinyModel(), Start([1, 2], never, allowed=allowed), Settings(drafts=3, max_tokens=4))
    assert len(found.best) == 3
    assert {draft.ids[0] for draft in found.best} == {11}


def test_a_reset_goes_on_from_the_best_draft_alone_and_costs_no_extra_pass():
    model = TinyModel(3)
    found = superpose(model, Start([1, 2], never), Settings(drafts=3, max_tokens=9, reset_every=3))
    assert model.passes == 9
    assert len({draft.ids[:6] for draft in found.best}) == 1  # the last reset was after six tokens


def test_after_a_reset_the_model_has_read_the_draft_itself():
    chosen = Settings(drafts=3, max_tokens=4, temperature=1.0, reset_every=3)
    found = superpose(TinyModel(5), Start([1, 2], never), chosen)
    prefix = found.best[0].ids[:3]
    logits = TinyModel(5).prefill([1, 2, *prefix])
    assert {draft.ids[3] for draft in found.best} == set(np.argsort(-logits)[:3])


def test_superposition_weighs_drafts_by_their_probability():
    live = [Draft((1,), math.log(0.6)), Draft((2,), math.log(0.2))]
    assert superposition(live) == pytest.approx([0.75, 0.25])


def test_fuse_multiplies_where_both_know_a_token_and_leaves_the_rest_out():
    logp = np.log([0.5, 0.3, 0.2])
    found = fuse(logp, np.array([[0.1, 0.0, 0.4], [0.0, 0.0, 0.0]]), 0.5)
    assert np.exp(found[0]) == pytest.approx([(0.5 * 0.1) ** 0.5, 0.0, (0.2 * 0.4) ** 0.5])
    assert found[1] == pytest.approx(0.5 * logp + LOG_DELTA)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(1, 70))
def test_top_orders_by_value_then_by_place(values, n):
    found = top(np.array(values, dtype=np.float32), n)
    assert list(found) == sorted(range(len(values)), key=lambda i: (-values[i], i))[:n]

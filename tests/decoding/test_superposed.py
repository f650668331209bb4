"""Superposed Decoding does what the paper says, at one pass per token."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ngram_builders.index.mixture import DEFAULT_WEIGHT, Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.candidates import LOG_DELTA, LOG_FLOOR, top
from spd_lsp.decoding.superposed import OPTIONS_PER_DRAFT, DecodingRequest, Draft, rank_drafts, superpose
from spd_lsp.evaluation.decoders import beam
from spd_lsp.models.load import load
from spd_lsp.settings import Settings
from tests.conftest import PACKAGE, STARTER, VOCABULARY, TinyModel, first_of, spelled

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
        return np.stack([self.row(history)[candidates] for history in histories])

    def row(self, history):
        return self.table[history[-1]]

    def mix(self, histories, candidates, p):
        return 0.5 * p + 0.5 * self(histories, candidates)

    def mix_top(self, histories, p, n):
        both = np.union1d(top(p, n), self.successors(histories, n))
        candidates = both[p[both] >= 0]
        return candidates, self.mix(histories, candidates, p[candidates])

    def successors(self, histories, n):
        return np.unique([np.argsort(-self.row(history), kind="stable")[:n] for history in histories])


def naive(model, prompt, settings, stop=never, counts=None, allowed=lambda ids: None):
    """The paper with dictionaries and loops: written from the formulas, one candidate at a time."""
    k, tau, alpha = settings.drafts, settings.temperature, settings.alpha

    def softmax(logits, ids):
        peak = max(logits[i] for i in ids)
        exps = {i: math.exp((logits[i] - peak) / tau) for i in ids}
        total = sum(exps.values())
        return {i: e / total for i, e in exps.items()}

    def likeliest(values, n, ids):
        return heapq.nlargest(n, ids, key=lambda i: values[i])

    def keep(options):
        live, done = [], []
        few = 0 if settings.ranking == "mean" else OPTIONS_PER_DRAFT * k
        full_at = 0
        for seen, (ids, score) in enumerate(sorted(options.items(), key=lambda item: -item[1])):
            if len(live) == k and seen >= max(few, full_at):
                break
            if stop(ids):
                done.append((ids, score))
            elif len(live) < k:
                live.append((ids, score))
                full_at = seen + 1
        return live, done

    def worth(draft):
        return draft[1] / len(draft[0]) if settings.ranking == "mean" else draft[1]

    def linear_options(logits, live):
        p = softmax(logits, range(len(logits)))
        histories = [(*prompt, *ids) for ids, _ in live]
        chosen = set(likeliest(logits, settings.candidates, p))
        for history in histories:
            chosen |= set(likeliest(counts.row(history), settings.candidates, p))
        return {
            (*ids, x): score + math.log(0.5 * p[x] + 0.5 * counts.row(history)[x])
            for (ids, score), history in zip(live, histories, strict=True)
            for x in sorted(chosen)
        }

    def paper_options(logits, live):
        best = likeliest(logits, settings.candidates, range(len(logits)))
        whole = softmax(logits, best)
        options = {}
        for ids, score in live:
            bound = allowed(ids)
            mine = best if bound is None else likeliest(logits, settings.candidates, bound)
            p = {x: whole[best[0]] * math.exp((logits[x] - logits[best[0]]) / tau) for x in mine}
            known = counts.row((*prompt, *ids)) if counts else p
            for x in mine:
                if counts is None:
                    options[(*ids, x)] = score + math.log(p[x])
                elif known[x]:
                    options[(*ids, x)] = score + math.log(p[x] ** (1 - alpha) * known[x] ** alpha)
                else:
                    penalty = LOG_FLOOR if any(known[y] for y in mine) else LOG_DELTA
                    options[(*ids, x)] = score + (1 - alpha) * math.log(p[x]) + penalty
        return options

    logits = model.prefill(prompt)
    if settings.interpolation == "linear":
        live, finished = keep(linear_options(logits, [((), 0.0)]))
    else:
        p = softmax(logits, range(len(logits)) if allowed(()) is None else allowed(()))
        live, finished = keep({(i,): math.log(p[i]) for i in likeliest(logits, 2 * k, p)})
    finished = finished[:k]
    for read in range(1, settings.max_tokens):
        if not live or (len(finished) == k and max(map(worth, live)) <= min(map(worth, finished))):
            break
        if settings.reset_every and read % settings.reset_every == 0:
            live = live[:1]
            logits = model.prefill([*prompt, *live[0][0]])
        else:
            shares = [math.exp(score - live[0][1]) for _, score in live]
            gamma = [share / sum(shares) for share in shares]
            logits = model.step([ids[-1] for ids, _ in live], np.array(gamma))
        live, done = keep((linear_options if settings.interpolation == "linear" else paper_options)(logits, live))
        finished = sorted([*finished, *done[:k]], key=lambda d: -worth(d))[:k]
    return sorted([*finished, *live], key=lambda d: -worth(d))[:k]


@hypothesis_settings(deadline=None, max_examples=70)
@given(
    seed=st.integers(0, 10_000),
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9),
    k=st.integers(1, 8),
    candidates=st.integers(1, 20),
    tau=st.sampled_from([0.3, 1.0, 2.0]),
    alpha=st.sampled_from([0.2, 0.54]),
    asked=st.sampled_from(["nothing", "paper", "linear"]),
    ranking=st.sampled_from(["mean", "probability"]),
    reset_every=st.integers(0, 4),
    typed=st.sampled_from([first_of(), first_of(11, 12), spelled]),
)
def test_the_vectorised_step_equals_a_naive_loop(
    seed, prompt, k, candidates, tau, alpha, asked, ranking, reset_every, typed
):
    """Also where there are fewer candidates than drafts, as after a reset, or where little may follow."""
    rule = "linear" if asked == "linear" else "paper"
    allowed = first_of() if rule == "linear" else typed
    settings = Settings(
        drafts=k,
        candidates=candidates,
        temperature=tau,
        alpha=alpha,
        max_tokens=8,
        interpolation=rule,
        ranking=ranking,
        reset_every=reset_every,
    )
    counts = None if asked == "nothing" else Counts(seed)
    request = DecodingRequest(prompt, at_stop, prompt, counts, allowed)
    found = superpose(TinyModel(seed), request, settings)
    expected = naive(TinyModel(seed), prompt, settings, at_stop, counts, allowed)
    assert [draft.ids for draft in found.best] == [ids for ids, _ in expected]
    assert [draft.score for draft in found.best] == pytest.approx([score for _, score in expected])


class Recorder:
    """A model that writes down what it was asked; `prefill` and `step` of a replay answer the same to the same."""

    def __init__(self, model):
        self.model = model
        self.asked = []

    def prefill(self, ids, check):
        return self._record(ids, None, self.model.prefill(ids))

    def step(self, ids, weights):
        return self._record(ids, weights, self.model.step(ids, weights))

    def _record(self, ids, weights, logits):
        self.asked.append((list(ids), weights, logits))
        return logits


class Replay:
    def __init__(self, recorder):
        self.asked = iter(recorder.asked)

    def prefill(self, ids):
        return self.step(ids, None)

    def step(self, ids, weights):
        expected, gamma, logits = next(self.asked)
        assert ids == expected
        assert weights is gamma is None or weights == pytest.approx(gamma, abs=1e-4)
        return logits.tolist()


class NaiveNgrams:
    """Section 3.2 with dictionaries: the paper's sum over the orders whose context was seen."""

    def __init__(self, ids):
        self.following = defaultdict(Counter)
        for order in range(2, 7):
            for at in range(len(ids) - order + 1):
                self.following[tuple(ids[at : at + order - 1])][ids[at + order - 1]] += 1

    def row(self, history):
        p = Counter()
        for order, weight in zip(range(2, 7), (0.01, 0.04, 0.15, 0.18, 0.12), strict=True):
            following = self.following.get(tuple(history[1 - order :]), {})
            for token, count in following.items():
                p[token] += weight * count / sum(following.values())
        return p


@pytest.mark.slow
@pytest.mark.parametrize("knows_code", [False, True])
def test_at_thirty_places_the_starters_drafts_are_those_of_the_naive_loop(knows_code):
    """The paper's formula on code of this package; in turn with k of 1 to 5, and resets."""
    tokens, model = ModelTokenizer(STARTER), load(STARTER, "cpu")
    *texts, text = [path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "decoding").glob("*.py"))]
    ids, known = tokens.encode(text), tokens.encode("\n".join(texts))
    mixture = Mixture([[Signed(build_suffix_array([np.array(known)]))]], [DEFAULT_WEIGHT]) if knows_code else None
    naive_ngrams = NaiveNgrams(known) if knows_code else None
    chosen_otherwise = 0
    for place in range(30):
        prompt = ids[20 * place : 20 * place + 40]
        k, reset_every, candidates = 1 + place % 5, (0, 2, 3)[place % 3], (9, 2)[place % 2]
        settings = Settings(
            drafts=k, reset_every=reset_every, candidates=candidates, interpolation="paper", ranking="mean",
            temperature=0.5, max_tokens=7,
        )  # fmt: skip
        recorder = Recorder(model)
        found = superpose(recorder, DecodingRequest(prompt, never, prompt, mixture), settings)
        expected = naive(Replay(recorder), prompt, settings, never, naive_ngrams)
        assert [draft.ids for draft in found.best] == [draft for draft, _ in expected]
        assert [draft.score for draft in found.best] == pytest.approx([score for _, score in expected], abs=1e-3)
        alone = superpose(model, DecodingRequest(prompt, never), settings)
        chosen_otherwise += [draft.ids for draft in alone.best] != [draft.ids for draft in found.best]
    assert (chosen_otherwise > 10) == knows_code  # n-grams decide, where there are some


@pytest.mark.parametrize("seed", range(10))
def test_one_draft_without_ngrams_is_greedy_decoding(seed):
    settings = Settings(drafts=1, max_tokens=12, ranking="mean")
    found = superpose(TinyModel(seed), DecodingRequest([3, 1], at_stop), settings)

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

    found = superpose(model, DecodingRequest([1, 2], watched), Settings(drafts=k, max_tokens=10))
    assert model.passes == found.passes == found.longest == max(seen) <= 10
    if stop is never:
        assert found.passes == max(len(draft.ids) for draft in found.best) == 10


@pytest.mark.parametrize("interpolation", ["paper", "linear"])
@pytest.mark.parametrize("seed", range(5))
def test_there_are_always_k_finite_and_different_drafts(seed, interpolation):
    settings = Settings(drafts=6, candidates=6, max_tokens=6, interpolation=interpolation)
    found = superpose(TinyModel(seed), DecodingRequest([1], at_stop, [1], Counts(seed)), settings)
    assert len({draft.ids for draft in found.best}) == 6
    assert all(math.isfinite(draft.score) for draft in found.best)


def test_nested_drafts_may_hold_a_token_that_the_model_would_never_choose():
    counts = Counts(0)
    logits = TinyModel(1).prefill([1, 2])
    unlikely = int(np.argmin(logits))
    counts.table[2] = 0.0
    counts.table[2, unlikely] = 1.0

    def first_token(rule):
        settings = Settings(interpolation=rule, drafts=1, candidates=3, max_tokens=1)
        return superpose(TinyModel(1), DecodingRequest([1, 2], never, [2], counts), settings).best[0].ids[0]

    assert first_token("linear") == unlikely
    assert first_token("paper") == int(np.argmax(logits))


@pytest.mark.parametrize("decode", [superpose, beam, best_first])
@pytest.mark.parametrize("counts", [Counts(3), None])
def test_what_a_person_has_typed_is_given(decode, counts):
    """One of the tokens that go on from there follows for certain: their probabilities add up to one."""
    start = DecodingRequest([1, 2], never, [2], counts, first_of(11, 12, 13))
    found = decode(TinyModel(), start, Settings(drafts=3, max_tokens=1, candidates=3), lambda: None)
    assert sum(math.exp(draft.score) for draft in found.best) == pytest.approx(1)


def test_a_reset_goes_on_from_the_best_draft_alone_and_costs_no_extra_pass():
    model = TinyModel(3)
    found = superpose(model, DecodingRequest([1, 2], never), Settings(drafts=3, max_tokens=9, reset_every=3))
    assert model.passes == 9
    assert len({draft.ids[:6] for draft in found.best}) == 1  # the last reset was after six tokens


def test_what_drafts_begin_with_is_known():
    """Every beginning of a draft was live when it was read, with the probability that it had."""
    found = superpose(TinyModel(4), DecodingRequest([1, 2], at_stop), Settings(max_tokens=6))
    scores = {draft.ids: draft.score for draft in found.intermediate}
    for draft in found.best:
        path = [scores[draft.ids[:length]] for length in range(1, len(draft.ids))]
        assert path == sorted(path, reverse=True)


ENDS = {10: "", 11: "", 12: " "}  # two ways to end a line, and one that reads otherwise


def text_of(ids):
    return "".join(ENDS.get(i, chr(97 + i)) for i in ids)


def draft_of(p, *ids):
    return Draft(ids, math.log(p))


def test_by_mean_every_draft_stays_for_itself_and_certain_tokens_help():
    short, long = draft_of(0.5, 1, 10), draft_of(0.4, 1, 2, 3, 4, 10)
    assert rank_drafts([short, long], "mean", text_of) == [long, short]
    assert rank_drafts([short, long], "probability", text_of) == [short, long]


drafts = st.lists(
    st.tuples(st.lists(st.integers(0, 3), max_size=3), st.integers(10, 12), st.floats(0.001, 0.05)), max_size=12
)


@given(drafts, st.integers(0, 12))
def test_probability_is_kept_and_it_does_not_matter_when_drafts_are_added(found, cut):
    found = [draft_of(p, *ids, end) for ids, end, p in found]
    at_once = rank_drafts(found, "probability", text_of)
    assert sum(math.exp(draft.score) for draft in at_once) == pytest.approx(sum(math.exp(d.score) for d in found))
    assert len({text_of(draft.ids) for draft in at_once}) == len(at_once)
    in_turn = rank_drafts(
        [*rank_drafts(found[:cut], "probability", text_of), *found[cut:]], "probability", text_of
    )
    assert {text_of(draft.ids): pytest.approx(draft.score) for draft in at_once} == {
        text_of(draft.ids): draft.score for draft in in_turn
    }

"""What a rule says of a token while it is fitted is what it says while drafts are written; all sums to 1."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_builders.counts import ORDERS, count_streams, negate
from ngram_builders.writer import columns_of
from spd_lsp.evaluation.smoothing.evidence import evidence_of
from spd_lsp.evaluation.smoothing.observing import Observations, join, mask, said
from spd_lsp.evaluation.smoothing.rules import Discount, WittenBell, nats, rules
from spd_lsp.evaluation.smoothing.trial import Smoothed
from spd_lsp.interpolation import Mixture

V = 30


def stream(seed, length):
    """Tokens that like to follow one another."""
    random = np.random.default_rng(seed)
    ids = [0]
    for _ in range(length):
        ids.append((ids[-1] * 3 + int(random.choice(3, p=[0.7, 0.2, 0.1]))) % V)
    return np.array(ids)


def columns(ids):
    return columns_of(count_streams([ids], orders=ORDERS, vocab_size=V), V)


@pytest.fixture(scope="module")
def mixture():
    """Two pools, the first with a document taken back."""
    whole, taken = np.concatenate((stream(1, 300), stream(2, 80))), stream(2, 80)
    back = columns_of(negate(count_streams([taken], orders=ORDERS, vocab_size=V)), V)
    return Mixture([[columns(whole), back], [columns(stream(3, 200))]], [0.7, 0.1])


def word(seed):
    return np.random.default_rng(seed).dirichlet(np.full(V, 0.2)).astype(np.float32)


@pytest.fixture(scope="module")
def observed(mixture):
    """Observations of a text, with the model's word and the history of each place."""
    ids = stream(4, 120)
    places = []
    for at in range(1, len(ids)):
        chosen = mask(np.arange(at % 3, V), V) if at % 4 == 0 else None
        if chosen is not None:
            chosen[ids[at]] = True
        places.append((word(at), ids[:at].tolist(), mask(ids[at : at + 1], V), chosen))
    parts = []
    for at, (p, history, gold, chosen) in enumerate(places):
        one = said(p, evidence_of(mixture.query, history, V), gold, chosen)
        parts.append(Observations(package=np.array(["ab"[at % 2]]), **{name: v[None] for name, v in one.items()}))
    return join(parts), places


@pytest.fixture(scope="module")
def fitted(observed):
    """Every rule, fitted."""
    return {name: rule.fit(observed[0]) for name, rule in rules().items()}


@pytest.mark.parametrize("name", rules())
def test_a_rule_says_the_same_of_a_token_when_it_is_fitted_and_when_it_writes(name, mixture, observed, fitted):
    seen, places = observed
    rule = fitted[name]
    likely = rule.likelihoods(seen)
    for at, (p, history, gold, chosen) in enumerate(places):
        open_ = p.astype(np.float64) * (1 if chosen is None else chosen)
        mixed = rule.mix(open_, evidence_of(mixture.query, history, V))
        among = np.full(V, True) if chosen is None else chosen
        if name != "stupid backoff" or chosen is None:
            assert mixed[gold].sum() / mixed[among].sum() == pytest.approx(likely[at], rel=1e-4)
        if chosen is None:
            assert mixed.sum() == pytest.approx(1, rel=1e-4)


def test_as_shipped_is_what_the_product_does(mixture, observed, fitted):
    _, places = observed
    smoothed = Smoothed(mixture, fitted["as shipped"])
    for p, history, _, _ in places[::7]:
        ids, expected = mixture.nested([history, history[:-1] or [0]], p, 5)
        found, mixed = smoothed.nested([history, history[:-1] or [0]], p, 5)
        assert (ids == found).all()
        # Softmax has no zeros: a weight of none in the product is one of a ten-thousandth here.
        assert mixed == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", sorted(set(rules()) - {"stupid backoff", "model alone"}))
def test_fitting_gains_where_it_was_fitted(name, observed, fitted):
    seen, _ = observed
    rule = rules()[name]
    before = rule if isinstance(rule, Discount | WittenBell) else fitted["as shipped"]
    assert nats(fitted[name].likelihoods(seen)) <= nats(before.likelihoods(seen)) + 1e-6


def test_the_textbook_s_rules_by_hand(mixture):
    one = Mixture([[columns(np.array([1, 2, 1, 2, 1, 3]))]], [1.0])
    evidence = evidence_of(one.query, [9, 1], V)  # after 1: 2 twice, 3 once
    p = np.full(V, 1 / V)
    d = np.full((len(ORDERS), 3), 0.5)
    found = Discount(d=d).mix(p, evidence)
    assert found[2] == pytest.approx((2 - 0.5) / 3 + (0.5 + 0.5) / 3 / V)
    assert found[5] == pytest.approx(1 / 3 / V)
    found = WittenBell().mix(p, evidence)
    assert found[2] == pytest.approx((2 + 2 / V) / 5)
    assert rules()["stupid backoff"].mix(p, evidence)[2] == pytest.approx((2 / 3) / (1 + 0.4 * (V - 2) / V))


def test_what_was_observed_is_kept(tmp_path, observed):
    seen, _ = observed
    seen.write(tmp_path / "said.npz")
    again = Observations.read(tmp_path / "said.npz")
    assert (again.package == seen.package).all()
    assert (again.row == seen.row).all()

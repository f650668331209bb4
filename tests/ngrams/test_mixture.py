"""Interpolation: p_ngram is the paper's sum, several tables are heard by weight, and bad ones left out."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ngram_builders.index.mixture import ORDER_WEIGHTS, ORDERS, PAPER_LAMBDAS, Mixture, Signed
from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.hub import STARTER, locate
from spd_lsp.ngrams.serving_tables import OpenFiles, ServingTables
from tests.ngram_builders.small_tables import write_texts

VOCABULARY = 12
END = 0
streams = st.lists(st.lists(st.integers(1, VOCABULARY - 1), max_size=30), min_size=1, max_size=4)


def table_of(folder, documents, name="t", fingerprint="f"):
    write_texts(folder / f"{name}.ngt", documents, VOCABULARY, fingerprint=fingerprint)
    return Table.open(folder / f"{name}.ngt")


def pool(table):
    return [Signed(table.array)]


def naive_counts(documents):
    ngrams = Counter()
    for ids in documents:
        padded = [END, *ids, END]
        for n in ORDERS:
            for at in range(1, len(padded)):
                if at - n + 1 >= 0:
                    ngrams[tuple(padded[at - n + 1 : at + 1])] += 1
    return ngrams


def naive_p(tables, history, token):
    """The formula with dictionaries: sum over orders of lambda times the weighted mean over tables that know."""
    total = 0.0
    for n in ORDERS:
        context = tuple(history[-(n - 1) :])
        if len(context) < n - 1:
            continue
        said, heard = 0.0, 0.0
        for ngrams, weight in tables:
            seen = sum(c for ngram, c in ngrams.items() if len(ngram) == n and ngram[:-1] == context)
            if seen:
                said += weight * ngrams[(*context, token)] / seen
                heard += weight
        total += PAPER_LAMBDAS[n - 2] * said / heard if heard else 0.0
    return total


@hypothesis_settings(deadline=None, max_examples=40)
@given(streams, streams, st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=8), min_size=1, max_size=4))
def test_a_mixture_equals_the_formula_with_dictionaries(tmp_path_factory, first, second, histories):
    folder = tmp_path_factory.mktemp("tables")
    tables = (table_of(folder, first, "a"), table_of(folder, second, "b"))
    candidates = np.arange(VOCABULARY)
    found = Mixture([pool(table) for table in tables], (0.7, 0.3))(histories, candidates)
    naive = [(naive_counts(first), 0.7), (naive_counts(second), 0.3)]
    expected = [[naive_p(naive, history, token) for token in candidates] for history in histories]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def weight_beside(top, *weights):
    """What is left of the sum of some order weights beside a model whose likeliest token has this probability."""
    odds = (1 - top) * sum(weights) / (1 - sum(weights))
    return odds / (1 + odds)


def test_nesting_believes_longer_contexts_more_and_unseen_ones_not_at_all(tmp_path):
    mixture = Mixture([pool(table_of(tmp_path, [[1, 2, 3, 4, 5, 6]]))], (1.0,))
    p = mixture.mix([[1, 2, 3, 4, 5], [9, 9, 9, 9, 5], [9]], np.array([6, 7]), np.array([0.1, 0.2]))
    known = weight_beside(0.2, *ORDER_WEIGHTS[5])
    assert p[0] == pytest.approx([0.1 * (1 - known) + known, 0.2 * (1 - known)])
    bigram = weight_beside(0.2, ORDER_WEIGHTS[1][0])
    assert p[1] == pytest.approx([0.1 * (1 - bigram) + bigram, 0.2 * (1 - bigram)])
    assert p[2] == pytest.approx([0.1, 0.2])


HISTORIES, KNOWN = [[1, 2, 3, 4, 5], [9, 9, 9, 9, 5], [9]], 6


@pytest.fixture
def knows_six(tmp_path):
    """A mixture that has seen 6 follow 1, 2, 3, 4, 5."""
    return Mixture([pool(table_of(tmp_path, [[1, 2, 3, 4, 5, KNOWN]]))], (1.0,))


def test_only_what_may_follow_says_how_sure_a_model_is(knows_six):
    """Of two tokens that begin with what is typed one is all but certain, however unlikely both were."""
    p = np.full(VOCABULARY, -1.0)
    p[7], p[KNOWN] = 0.0099, 0.0001
    ids, mixed = knows_six.mix_top(HISTORIES[:1], p, 3)
    taken = 1 - mixed[0][ids == 7] / 0.0099
    assert taken == pytest.approx(weight_beside(0.99, *ORDER_WEIGHTS[5]), rel=1e-4)


def test_a_table_that_alone_knows_a_context_moves_the_model_as_far_as_its_weight(tmp_path):
    """Up to the usual weight; and it does not silence what others know of a shorter context."""
    table, other = table_of(tmp_path, [[1, 2, 3, 4, 5, 6]], "a"), table_of(tmp_path, [[5, 7]], "b")
    p, most = np.array([0.1, 0.2]), weight_beside(0.2, *ORDER_WEIGHTS[5])
    history, candidates = [[1, 2, 3, 4, 5]], np.array([6, 7])
    for weight, share in ((0.05, 1 / 14), (0.35, 1 / 2), (0.7, 1), (1, 1)):
        mixed = Mixture([pool(table)], (weight,)).mix(history, candidates, p)[0]
        assert mixed == pytest.approx([0.1 + share * most * 0.9, 0.2 - share * most * 0.2])
    pools = [pool(table), pool(other)]
    without, little, more, usual = (
        Mixture(pools, (weight, 0.7)).mix(history, candidates, p)[0] for weight in (0.0, 0.05, 0.3, 0.7)
    )
    assert without[0] < little[0] < without[0] + 0.05 < more[0] < usual[0]
    assert without[1] > little[1] > without[1] - 0.05 > more[1] > usual[1]


def test_successors_are_what_followed_the_longest_known_context(tmp_path):
    mixture = Mixture([pool(table_of(tmp_path, [[1, 2, 3], [4, 2, 5]]))], (1.0,))
    assert mixture.successors([[1, 2]], 9).tolist() == [3]
    assert mixture.successors([[9, 2]], 9).tolist() == [3, 5]
    assert mixture.successors([[1, 2], [4, 2]], 9).tolist() == [3, 5]
    assert mixture.successors([[9]], 9).tolist() == []


def test_what_another_process_builds_and_chooses_serves_the_next_request(tmp_path):
    other, file = Registry(tmp_path / "data"), tmp_path / "a.py"
    tables = ServingTables(Registry(tmp_path / "data"), "f")
    assert tables.mixture_for(file, "python") is None
    for successor in (2, 3):  # built, and built again
        texts = [[1, successor]]
        other.install("mine", [lambda path, texts=texts: write_texts(path, texts, VOCABULARY, fingerprint="f")])
        other.assign_workspace(tmp_path, [("mine", 0.5)])
        assert tables.mixture_for(file, "python").successors([[1]], 4).tolist() == [successor]
    other.assign_workspace(tmp_path, [])
    assert tables.mixture_for(file, "python") is None
    (home := other.folder / "half").mkdir()  # seen while a build has begun to write it
    assert tables.mixture_for(file, "python") is None
    home.rmdir()
    other.install(
        "half", [lambda path: write_texts(path, [[1, 4]], VOCABULARY, fingerprint="f")], roots=[tmp_path]
    )
    assert tables.mixture_for(file, "python").names == ("half",)


def test_a_table_of_another_vocabulary_is_left_out_whatever_its_tokenizer_is_said_to_be(tmp_path):
    """Its ids would be others."""
    tokens = ModelTokenizer(locate(STARTER))
    registry, more = Registry(tmp_path / "data"), tokens.vocab_size + 1
    write = partial(write_texts, texts=[[1, more - 1]], vocab_size=more, fingerprint=tokens.fingerprint)
    registry.install("mine", [write], roots=[tmp_path])
    open_files = OpenFiles(tokens)
    tables = ServingTables(registry, tokens.fingerprint, open_files)
    assert tables.mixture_for(tmp_path / "a.py", "python") is None
    assert "its vocabulary is not that of its tokenizer; run: spd-lsp" in tables.problems[0]


def test_a_table_for_another_model_is_told_only_where_this_one_has_none(tmp_path):
    registry = Registry(tmp_path / "data")

    def install(name, fingerprint, **options):
        def write(path):
            return write_texts(path, [[1, 2]], VOCABULARY, fingerprint=fingerprint)

        registry.install(name, [write], recipe={"model": f"/models/{fingerprint}"}, **options)

    install("shop", "f", roots=[tmp_path / "shop"])
    install("shop-g", "g", roots=[tmp_path / "shop"])
    install("till-g", "g", roots=[tmp_path / "till"])
    tables = ServingTables(registry, "f", model="/models/f")
    assert tables.mixture_for(tmp_path / "shop" / "a.py", "python").names == ("shop",)
    assert tables.problems == []
    for _ in range(2):
        assert tables.mixture_for(tmp_path / "till" / "a.py", "python") is None
    assert tables.problems == [
        "n-gram table till-g was built for g, and f has another tokenizer; "
        f"run: spd-lsp build-ngrams {tmp_path / 'till'} --model /models/f"
    ]


def test_trust_multiplies_the_odds_of_n_grams_beside_the_model(tmp_path):
    mixture = Mixture([pool(table_of(tmp_path, [[1, 2, 3, 1, 2, 4], [5, 5, 5]]))], (1.0,))
    histories, candidates, p = [[1, 2], [9, 9]], np.array([3, 5]), np.array([0.25, 0.5])
    by_order, _ = mixture.probabilities(histories, candidates)
    plain = mixture.mix(histories, candidates, p)
    doubled = mixture.adjusted(2.0, 6).mix(histories, candidates, p)
    rows = ORDER_WEIGHTS[2]
    said = rows @ by_order[0] / rows.sum()  # of n-grams alone
    odds = (1 - 0.5) * rows.sum() / (1 - rows.sum())
    assert plain[0] == pytest.approx((p + odds * said) / (1 + odds))
    assert doubled[0] == pytest.approx((p + 2 * odds * said) / (1 + 2 * odds))
    assert doubled[1] == pytest.approx(p)  # of an unseen context nobody knows more
    assert mixture.adjusted(0.0, 6).mix(histories, candidates, p)[0] == pytest.approx(p)
    assert mixture.adjusted(1.0, 6) is mixture


def test_the_longest_order_leaves_longer_contexts_unasked(tmp_path):
    table = table_of(tmp_path, [[1, 2, 3, 1, 2, 4], [5, 5, 5]])
    mixture = Mixture([pool(table)], (1.0,))
    bigrams = mixture.adjusted(1.0, 2)
    (_, heard), (_, fewer) = (one.probabilities([[1, 2]], np.array([3])) for one in (mixture, bigrams))
    assert (heard[0, :3] > 0).tolist() == [True, True, False]
    assert (fewer[0, :3] > 0).tolist() == [True, False, False]
    assert bigrams.successors([[4, 1]], 5).tolist() == [2]
    p = np.full(VOCABULARY, 1 / VOCABULARY, dtype=np.float32)
    ids, mixed = bigrams.mix_top([[9, 2]], p, 3)
    assert mixed == pytest.approx(bigrams.mix([[9, 2]], ids, p[ids]))
    assert mixture.mix_top([[9, 2]], p, 3)[1] == pytest.approx(mixed)  # one token of context says the same

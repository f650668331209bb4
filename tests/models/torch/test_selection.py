"""Candidates are selected where the logits are: the drafts are those of whole rows, and little is copied."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from ngram_builders.index.mixture import Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.logits import Wanted, top
from spd_lsp.models.torch import engine as module
from spd_lsp.models.torch.engine import TransformersEngine, answers
from spd_lsp.settings import Settings
from tests.models.networks import random_network

VOCABULARY = 5000
# The shape of SmolLM2: three heads to one of keys, tied embeddings, several layers.
SMOLLM2_LIKE = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=144,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=9,
    num_key_value_heads=3,
    tie_word_embeddings=True,
)
RULES = {
    "linear": {},
    "warm": {"temperature": 1.7, "candidates": 5},
    "paper": {"interpolation": "paper", "ranking": "mean"},
}


@pytest.fixture(scope="module")
def network():
    return random_network(SMOLLM2_LIKE)


def texts(count=30, length=32):
    """As tokens of code recur: some often, most seldom."""
    rng = np.random.default_rng(5)
    return [np.minimum(rng.zipf(1.4, length), VOCABULARY - 1).tolist() for _ in range(count)]


def counted(streams):
    return Mixture([[Signed(build_suffix_array(map(np.array, streams)))]], [1.0])


def drafts_of(engine, prompt, ngrams=None, k=3, tokens=9, allowed=lambda ids: None, **rule):
    request = DecodingRequest(prompt, lambda ids: ids[-1] % 11 == 0, prompt[-8:], ngrams, allowed)
    return superpose(engine, request, Settings(drafts=k, max_tokens=tokens, **rule))


def engines(network):
    """One that selects, and one that hands over whole rows."""
    selecting, whole = TransformersEngine(network), TransformersEngine(network)
    whole.selects = False
    return selecting, whole


def assert_same(found, expected):
    """The same drafts in the same order; scores but for the rounding of one sum over the vocabulary."""
    for some, others in ((found.best, expected.best), (found.spare, expected.spare)):
        assert [draft.ids for draft in some] == [draft.ids for draft in others]
        np.testing.assert_allclose([d.score for d in some], [d.score for d in others], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("has_ngrams", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_drafts_are_those_of_whole_rows(network, rule, has_ngrams):
    """Of thirty prompts, three or eight drafts each."""
    selecting, whole = engines(network)
    prompts = texts()
    ngrams = counted(prompts[:10]) if has_ngrams else None
    for number, prompt in enumerate(prompts):
        asked = prompt[:-12], ngrams, 8 if number % 2 else 3, 7
        assert_same(*[drafts_of(engine, *asked, **RULES[rule]) for engine in (selecting, whole)])


@pytest.fixture
def copies(monkeypatch):
    """The bytes of each copy to the host."""
    sizes: list[int] = []

    def watch(name):
        original = getattr(torch.Tensor, name)

        def watched(tensor):
            sizes.append(tensor.nbytes)
            return original(tensor)

        monkeypatch.setattr(torch.Tensor, name, watched)

    watch("cpu")
    watch("tolist")
    return sizes


@pytest.mark.parametrize("k", [3, 8])
def test_a_step_copies_little_once(network, copies, k):
    """One copy a pass: of the likeliest tokens and those that n-grams ask for, and not of the vocabulary."""
    prompts = texts()
    engine, ngrams = TransformersEngine(network), counted(prompts[:10])
    engine.prefill(prompts[11])
    assert copies[-1] == 4 * VOCABULARY
    copies.clear()
    result = drafts_of(engine, prompts[11], ngrams, k)
    assert result.passes > 5
    assert len(copies) == result.passes - 1
    likeliest = 20 + module._SPARE
    most_asked = 20 * k  # of one pool
    assert max(copies) <= 4 * (2 * likeliest + 1 + most_asked)
    copies.clear()
    drafts_of(engine, prompts[11], None, k)
    assert set(copies) == {4 * (2 * likeliest + 1)}


def test_of_equally_likely_tokens_the_first_are_selected():
    """Half precision makes many logits equal."""
    x = torch.tensor(np.random.default_rng(0).normal(0, 3, (1, VOCABULARY))).bfloat16()
    assert len(set(x[0].topk(25).values.tolist())) < 20
    [found] = answers([x], [Wanted(20)])
    np.testing.assert_array_equal(found.ids, top(x[0].float().numpy(), 20))

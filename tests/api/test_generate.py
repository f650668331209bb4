"""`generate` writes superposed drafts: for each prompt of a batch what the decoder writes, at one pass a token."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import (
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    StoppingCriteria,
    T5Config,
    T5ForConditionalGeneration,
)

import spd_lsp
from ngram_builders.index.mixture import Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.torch.engine import TransformersEngine
from spd_lsp.settings import Settings
from tests.models.networks import SMALL, VOCABULARY, WINDOW, ids_of, random_network
from tests.ngram_builders.small_tables import write_texts

PAD, EOS = 0, 2
FAMILIES = {
    "llama": LlamaConfig(**SMALL),
    "mistral, window": MistralConfig(**SMALL, sliding_window=WINDOW),
    "gemma 2": Gemma2Config(**SMALL, head_dim=8, sliding_window=WINDOW),
    "gpt 2": GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=512),
    "bloom": BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4),  # takes no positions
}


@pytest.fixture(scope="module", params=FAMILIES)
def network(request):
    return random_network(FAMILIES[request.param])


@pytest.fixture(scope="module")
def llama():
    return random_network(FAMILIES["llama"])


def padded(prompts):
    """Prompts as a tokenizer that pads on the left returns them."""
    longest = max(map(len, prompts))
    rows = [[PAD] * (longest - len(prompt)) + prompt for prompt in prompts]
    masks = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def written(network, prompts, k=3, tokens=8, **options):
    """The texts of each prompt without padding, and their scores."""
    inputs = padded(prompts)
    options = {"num_beams": k, "num_return_sequences": k, "eos_token_id": None, "pad_token_id": PAD, **options}
    found = network.generate(
        **inputs,
        custom_generate=spd_lsp.superposed_decoding,
        max_new_tokens=tokens,
        return_dict_in_generate=True,
        **options,
    )
    new = found.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    k = len(new) // len(prompts)
    rows = [tuple(row) for row in new]
    return [rows[i * k : (i + 1) * k] for i in range(len(prompts))], found.sequences_scores.reshape(-1, k).numpy()


def drafted(network, prompt, ngrams=None, stop=lambda ids: False, k=3, tokens=8, **chosen):
    """What the decoder of editors writes."""
    request = DecodingRequest(prompt, stop, prompt, ngrams)
    return superpose(TransformersEngine(network), request, Settings(drafts=k, max_tokens=tokens, **chosen))


def passes_of(network, work):
    passes = []
    hook = network.register_forward_pre_hook(lambda module, args: passes.append(1))
    work()
    hook.remove()
    return len(passes)


PROMPTS = [ids_of(2 * WINDOW), ids_of(5, 1), ids_of(WINDOW, 2)]


def test_a_batch_of_prompts_gets_the_drafts_that_each_gets_alone(network):
    texts, scores = written(network, PROMPTS)
    for prompt, found, its_scores in zip(PROMPTS, texts, scores, strict=True):
        best = drafted(network, prompt).best
        assert found == [draft.ids for draft in best]
        np.testing.assert_allclose(its_scores, [draft.score for draft in best], rtol=1e-3)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[:1]])
def test_passes_are_the_tokens_of_the_longest_text_whatever_k_is_and_however_many_prompts(llama, k, prompts):
    assert passes_of(llama, lambda: written(llama, prompts, k, 9)) == 9


def test_texts_that_end_cost_no_further_pass_and_are_padded(llama):
    """Each prompt is done when the decoder says so; the batch when its last is."""
    eos = list(range(0, VOCABULARY, 3))
    alone = [drafted(llama, prompt, stop=lambda ids: ids[-1] in eos) for prompt in PROMPTS]
    longest = max(found.longest for found in alone)
    assert longest < 8
    assert passes_of(llama, lambda: written(llama, PROMPTS, eos_token_id=eos)) == longest
    texts, _ = written(llama, PROMPTS, eos_token_id=eos, pad_token_id=95)
    length = max(len(draft.ids) for found in alone for draft in found.best)
    for found, expected in zip(texts, alone, strict=True):
        assert found == [(*draft.ids, *[95] * (length - len(draft.ids))) for draft in expected.best]


def test_sequences_are_prompts_and_texts_as_beam_search_returns_them(llama):
    inputs = padded(PROMPTS)
    options = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 4}
    options |= {"eos_token_id": None, "pad_token_id": PAD}
    ours = llama.generate(**inputs, custom_generate=spd_lsp.superposed_decoding, **options)
    theirs = llama.generate(**inputs, do_sample=False, **options)
    assert ours.shape == theirs.shape
    width = inputs["input_ids"].shape[1]
    assert torch.equal(ours[:, :width], theirs[:, :width])
    assert ours.dtype == theirs.dtype


def test_more_drafts_than_texts_are_kept_as_beams_are(llama):
    [texts], _ = written(llama, PROMPTS[:1], num_beams=8, num_return_sequences=2)
    request = DecodingRequest(PROMPTS[0], lambda ids: False)
    wide = superpose(TransformersEngine(llama), request, Settings(drafts=2, max_tokens=8), width=8)
    assert texts == [draft.ids for draft in wide.best]


@pytest.mark.parametrize("paper", [False, True])
def test_ngrams_of_token_ids_decide_what_follows(llama, paper):
    counted = [ids_of(40, 7), ids_of(40, 8)]
    prompt = [*ids_of(10), *counted[0][:6]]
    mixture = Mixture([[Signed(build_suffix_array(map(np.array, counted)))]], [1.0])
    rule = {"interpolation": "paper", "ranking": "mean"} if paper else {}
    expected = [draft.ids for draft in drafted(llama, prompt, mixture, **rule).best]
    assert expected != [draft.ids for draft in drafted(llama, prompt, **rule).best]
    for ngrams in (counted, mixture):
        assert written(llama, [prompt], ngrams=ngrams, paper=paper)[0] == [expected]
    [[best, *_]], _ = written(llama, [prompt], ngrams=counted, ngram_weight=50.0)
    assert best == tuple(counted[0][6:14])


def test_ngrams_of_tables_are_read_from_their_files(llama, bigram_table):
    table, follows = bigram_table(VOCABULARY)
    [[best, *_]], _ = written(llama, [ids_of(6)], ngrams=table, ngram_weight=100.0)
    assert all(follows[a] == b for a, b in pairwise(best))
    with pytest.raises(spd_lsp.UserError, match=r"missing\.ngt"):
        written(llama, [ids_of(6)], ngrams="missing.ngt")
    with pytest.raises(spd_lsp.UserError, match=r"has 97 tokens, but the model has 96: they belong to different"):
        written(llama, [ids_of(6)], ngrams=bigram_table(VOCABULARY + 1)[0])


def test_a_callers_own_criteria_end_texts(llama):
    class Even(StoppingCriteria):
        def __call__(self, input_ids, scores):
            return input_ids[:, -1] % 2 == 0

    texts, _ = written(llama, PROMPTS, stopping_criteria=[Even()])
    for prompt, found in zip(PROMPTS, texts, strict=True):
        expected = drafted(llama, prompt, stop=lambda ids: ids[-1] % 2 == 0).best
        assert [row[: len(draft.ids)] for row, draft in zip(found, expected, strict=True)] == [
            draft.ids for draft in expected
        ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"repetition_penalty": 1.2},
            "RepetitionPenaltyLogitsProcessor cannot treat each by itself; switch it off",
        ),
        ({"past_key_values": "read"}, "reads the prompt itself; pass no past_key_values"),
        ({"k": 97}, "expected 97 different texts, found 96; lower num_return_sequences"),
        ({"tau": 0}, "tau must be from 0.001 to 10.0, not 0"),
        ({"alpha": 5}, "alpha must be from 0.0 to 1.0, not 5"),
        ({"candidates": 0}, "candidates must be from 1 to 1000, not 0"),
        ({"ngram_weight": -1}, "ngram_weight must be from 0.0 to 100.0, not -1"),
    ],
)
def test_what_cannot_be_done_is_refused(llama, options, message):
    if "past_key_values" in options:
        options = {"past_key_values": llama(torch.tensor(PROMPTS[:1]), use_cache=True).past_key_values}
    with pytest.raises(ValueError, match=message):
        written(llama, PROMPTS[:1], **{"tokens": 1, **options})


def test_models_and_inputs_that_cannot_be_continued_are_refused(llama):
    encoder = T5ForConditionalGeneration(
        T5Config(vocab_size=96, d_model=16, d_kv=4, d_ff=16, num_layers=1, decoder_start_token_id=0)
    )
    for network, inputs, message in (
        (encoder, {"input_ids": torch.tensor([[3, 4]])}, "needs a causal model, found one with an encoder"),
        (
            random_network(MambaConfig(vocab_size=96, hidden_size=16, num_hidden_layers=1)),
            {"input_ids": torch.tensor([[3, 4]])},
            "needs a model with a cache of keys and values",
        ),
        (
            llama,
            {"inputs_embeds": torch.zeros(1, 2, 32)},
            "starts from token ids; pass input_ids, not inputs_embeds",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            network.generate(
                **inputs, custom_generate=spd_lsp.superposed_decoding, max_new_tokens=2, pad_token_id=PAD
            )


@pytest.fixture
def bigram_table(tmp_path):
    """A table file in which each token has one successor; a maker by the number of tokens."""

    def make(vocabulary):
        ids = np.random.default_rng(3).permutation(np.arange(3, vocabulary))
        path = tmp_path / f"{vocabulary}.ngt"
        write_texts(path, [ids.tolist()] * 3, vocabulary)
        return path, dict(zip(ids.tolist(), ids[1:].tolist(), strict=False))

    return make

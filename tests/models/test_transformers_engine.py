"""The transformers engine: mixtures in, logits out; the cache holds what prompts share and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM as Auto
from transformers import (
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Starcoder2Config,
)

from spd_lsp.models.logits import log_softmax
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.models.networks import SMALL

FAMILIES = [
    LlamaConfig(**SMALL),
    Qwen2Config(**SMALL),
    MistralConfig(**SMALL, sliding_window=64),
    Gemma2Config(**SMALL, head_dim=8, sliding_window=64),
    Starcoder2Config(**SMALL, sliding_window=64),
    GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=512),
]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda config: config.model_type)
def network(request):
    torch.manual_seed(0)
    return Auto.from_config(request.param).eval()


def ids_of(length, seed=0):
    return np.random.default_rng(seed).integers(3, 96, length).tolist()


def plain_logits(network, ids):
    with torch.inference_mode():
        return network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float().numpy()


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_step_with_one_token_reads_that_token(network):
    model = TransformersEngine(network)
    ids = ids_of(20)
    model.prefill(ids)
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids, 7]))
    close(model.step([9], np.ones(1)), plain_logits(network, [*ids, 7, 9]))


def test_a_superposed_step_reads_the_weighted_sum_of_the_embeddings(network):
    model = TransformersEngine(network)
    ids = ids_of(6)
    model.prefill(ids)
    embed = network.get_input_embeddings()
    with torch.inference_mode():
        mixed = 0.75 * embed(torch.tensor([5])) + 0.25 * embed(torch.tensor([11]))
        whole = torch.cat([embed(torch.tensor(ids)), mixed])[None]
        expected = network(inputs_embeds=whole, use_cache=False).logits[0, -1].float().numpy()
    close(model.step([5, 11], np.array([0.75, 0.25])), expected)


def one_row(network, ids, steps):
    """The logits after each of a row's steps, read alone after a prefill."""
    model = TransformersEngine(network)
    model.prefill(ids)
    return [model.step(mixed, np.asarray(weights)) for mixed, weights in steps]


def test_rows_are_what_each_row_alone_would_be(network):
    ids = ids_of(20)
    rows = [([5], [1.0]), ([7], [1.0]), ([5, 11], [0.75, 0.25])]
    later = [([8], [1.0]), ([9, 3], [0.5, 0.5]), ([5], [1.0])]
    model = TransformersEngine(network)
    model.prefill(ids)
    first = model.step_rows(rows, [0, 0, 0])
    second = model.step_rows(later, [0, 1, 2])
    for i in range(3):
        alone = one_row(network, ids, [rows[i], later[i]])
        close(first[i], alone[0])
        close(second[i], alone[1])


def test_a_row_continues_its_parent(network):
    ids = ids_of(20)
    rows = [([token], [1.0]) for token in (5, 7, 9)]
    later = [([token], [1.0]) for token in (11, 12)]
    model = TransformersEngine(network)
    model.prefill(ids)
    model.step_rows(rows, [0, 0, 0])
    found = model.step_rows(later, [2, 2])  # fewer rows than before
    for i, step in enumerate(later):
        close(found[i], one_row(network, ids, [rows[2], step])[1])
    last = model.step_rows(rows, [1, 0, 1])  # and more
    close(last[2], one_row(network, ids, [rows[2], later[1], rows[2]])[2])


@pytest.mark.parametrize("n", [1, 3])
def test_drafts_of_one_token_take_no_pass(network, n):
    model = TransformersEngine(network)
    logits = model.prefill(ids_of(5))
    for found in model.score_drafts([[7]] * n):
        close(found, [log_softmax(logits)[7]])


def test_after_rows_and_drafts_the_cache_holds_the_prompt(network):
    ids = ids_of(20)
    longer = [*ids, 4, 5, 6]
    model = TransformersEngine(network)
    model.prefill(ids)
    model.step_rows([([5], [1.0]), ([7], [1.0])], [0, 0])
    model.score_drafts([[3, 4, 5], [6, 7, 8]])
    assert model.prompts[-1].ids == ids
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids, 7]))
    model.step_rows([([5], [1.0]), ([7], [1.0])], [0, 0])
    expected = plain_logits(network, longer)
    assert passes(model, lambda: close(model.prefill(longer), expected)) == [3]


def passes(model, work):
    """How many positions each pass reads that some work takes."""
    lengths = []
    hook = model.network.register_forward_pre_hook(
        lambda module, args, inputs: lengths.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    work()
    hook.remove()
    return lengths


def test_token_probabilities_are_those_of_one_plain_pass_and_leave_the_cache_alone(network):
    model = TransformersEngine(network)
    prompt, read = ids_of(20), ids_of(30, seed=3)
    model.prefill(prompt)
    found, likeliest = model.token_probabilities(read)
    with torch.inference_mode():
        p = network(input_ids=torch.tensor([read]), use_cache=False).logits[0].float().softmax(-1).numpy()
    np.testing.assert_allclose(found, [p[i, token] for i, token in enumerate(read[1:])], atol=1e-5)
    np.testing.assert_allclose(likeliest, p[:-1].max(axis=1), atol=1e-5)
    close(model.step([7], np.ones(1)), plain_logits(network, [*prompt, 7]))

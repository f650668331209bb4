"""Any attention-only family: one draft is `generate`'s greedy text, and a reused prefix is what a cold run gives.

The models are tiny and random, saved and opened as a person's would be, with prompts longer than sliding windows.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    GraniteConfig,
    GraniteMoeHybridConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
    Starcoder2Config,
)

from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.base import ForwardInput
from spd_lsp.models.load import load
from spd_lsp.settings import Settings
from tests.models.networks import SMALL, VOCABULARY, WINDOW, ids_of, plain_logits, random_network

HEAD = {**SMALL, "head_dim": 8}
NO_PADDING = {**SMALL, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
OLD = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
ONE_KEY_A_HEAD = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
FAMILIES = {
    "llama": LlamaConfig(**SMALL),
    "qwen2": Qwen2Config(**SMALL),
    "qwen2, window": Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    "qwen3": Qwen3Config(**HEAD),
    "mistral, window": MistralConfig(**SMALL, sliding_window=WINDOW),
    "mixtral": MixtralConfig(**SMALL, num_local_experts=4),
    "gemma": GemmaConfig(**HEAD),
    "gemma 2": Gemma2Config(**HEAD, sliding_window=WINDOW),
    "gemma 3": Gemma3TextConfig(
        **HEAD, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"]
    ),
    "phi 3": Phi3Config(**NO_PADDING, sliding_window=WINDOW),
    "starcoder 2": Starcoder2Config(**SMALL, sliding_window=WINDOW),
    "gpt 2": GPT2Config(**OLD),
    "gpt bigcode": GPTBigCodeConfig(**OLD),
    "gpt neox": GPTNeoXConfig(**ONE_KEY_A_HEAD),
    "granite": GraniteConfig(**SMALL, embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0),
    "granite 4, dense": GraniteMoeHybridConfig(
        **SMALL,
        layer_types=["attention", "attention"],
        num_local_experts=0,
        mamba_n_heads=4,
        shared_intermediate_size=64,
        position_embedding_type="rope",
    ),
    "smollm 3": SmolLM3Config(**NO_PADDING, no_rope_layers=[1, 0]),
}


@pytest.fixture(scope="module", params=FAMILIES)
def opened(request, tmp_path_factory):
    """A family's network, and the engine that `load` opens from its folder."""
    torch.manual_seed(1)
    network = random_network(FAMILIES[request.param])
    folder = tmp_path_factory.mktemp("model")
    network.save_pretrained(folder)
    return network, load(folder, "cpu")


def test_one_draft_is_what_generate_writes_greedily(opened):
    network, engine = opened
    ids = ids_of(2 * WINDOW)
    found = superpose(engine, DecodingRequest(ids, lambda ids: False), Settings(drafts=1, max_tokens=12))
    expected = network.generate(
        torch.tensor([ids]), do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0
    )
    assert list(found.best[0].ids) == expected[0, len(ids) :].tolist()


def test_a_reused_prefix_gives_what_a_cold_run_gives(opened):
    network, engine = opened
    ids = ids_of(3 * WINDOW)
    for prompt in [ids, [*ids, 5, 6], ids[:40], [*ids[:60], *ids_of(9, 1)], ids_of(30, 2), ids]:
        expected = plain_logits(network, prompt)
        np.testing.assert_allclose(engine.prefill(prompt), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
        engine.step([5, 11], np.array([0.5, 0.5]))
        engine.read_drafts([(3,), (4,)])


def test_a_step_can_be_compiled_and_waits_for_nothing(opened):
    """As one graph: what copies something to the host in the middle of a step is refused."""
    _, engine = opened
    cache, ids, weights = engine.new_cache(), [5, 11, 7], np.array([0.25, 0.5, 0.25])
    engine.forward(ids_of(3 * WINDOW), cache)
    plain = [engine.forward(ids, cache, weights) for _ in range(2)]
    torch._dynamo.reset()
    engine.compile_steps(backend="eager", dynamic=True)
    try:
        cache.crop(3 * WINDOW)
        for expected in plain:
            found = engine.forward(ids, cache, weights)
            assert engine.compiled_step
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    finally:
        engine.compiled_step = None


def test_steps_of_several_requests_are_one_pass_that_gives_what_each_would_get_alone(opened):
    """At positions before and beyond sliding windows, of mixtures, and of two drafts of one request."""
    _, engine = opened
    steps = [([5, 11], np.array([0.25, 0.75])), ([7], np.ones(1)), ([9], np.ones(1)), ([8], np.ones(1))]

    def inputs():
        texts = [engine.new_cache() for _ in steps[1:]]
        for number, (text, length) in enumerate(zip(texts, (10, 3 * WINDOW, 2 * WINDOW), strict=True)):
            engine.forward(ids_of(length, number), text)
        texts.append(texts[1].fork(3 * WINDOW))
        return [ForwardInput(text, *step) for text, step in zip(texts, steps, strict=True)]

    together, alone = inputs(), inputs()
    for _ in range(2):
        with counted(engine.network) as passes:
            found = engine.forward_batch(together)
        assert len(passes) == 1
        for logits, one in zip(found, alone, strict=True):
            [expected] = engine.forward_batch([one])
            np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@contextmanager
def counted(network):
    """A list that grows by one with each forward pass."""
    passes = []
    hook = network.register_forward_pre_hook(lambda module, args: passes.append(1))
    yield passes
    hook.remove()

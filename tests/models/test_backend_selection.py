"""The fastest engine that computes the same is chosen; every other model runs in transformers, and says why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    CohereConfig,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    SmolLM3Config,
    Starcoder2Config,
)

from ngram_builders.table.shared_library import KERNEL_VARIABLE
from spd_lsp.models import backend_selection as choice
from spd_lsp.models.backend_selection import fastest_engine
from spd_lsp.models.load import load
from spd_lsp.models.numpy.decoder import Dense, Int8, NumpyEngine
from spd_lsp.models.numpy.model_kernel import load_kernel
from spd_lsp.models.self_test import MAX_DIVERGENCE, all_logits, kl_divergence
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.conftest import STARTER
from tests.models.networks import FAST, SMALL, VOCABULARY, WINDOW, random_network

HEAD = {**SMALL, "head_dim": 8}
OTHERS = {
    "it has a parameter model.layers.0.post_feedforward_layernorm": [Gemma2Config(**HEAD)],
    "it has no parameter model.layers.0.input_layernorm.weight": [Olmo2Config(**SMALL)],
    "it has no parameter model.layers.0.post_attention_layernorm.weight": [CohereConfig(**SMALL)],
    "it has no parameter model.layers.0.mlp": [Phi3Config(**SMALL, pad_token_id=0)],
    "it has no parameter model.embed_tokens": [GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4)],
    "in NumPy, one pass differs by": [
        GemmaConfig(**HEAD),
        GraniteConfig(**SMALL, embedding_multiplier=3.0, residual_multiplier=0.5),
        LlamaConfig(**SMALL, hidden_act="gelu"),
        Starcoder2Config(**SMALL, hidden_act="relu"),
        SmolLM3Config(**SMALL, no_rope_layers=[1, 0], pad_token_id=0),
    ],
    "in NumPy, with a short window, one pass differs by": [LlamaConfig(**SMALL, sliding_window=64)],
    "its attention_chunk_size is 64": [LlamaConfig(**SMALL, attention_chunk_size=64)],
    "its position embeddings are of another type": [
        LlamaConfig(**SMALL, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
    ],
}


@pytest.mark.parametrize("config", FAST.values(), ids=FAST.keys())
def test_what_the_decoder_computes_runs_in_numpy(config):
    network = random_network(config)
    reports = []
    assert isinstance(fastest_engine(TransformersEngine(network), network, reports.append), NumpyEngine)
    assert reports == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        pytest.param(config, why, id=f"{config.model_type} {why}")
        for why, configs in OTHERS.items()
        for config in configs
    ],
)
def test_what_it_does_not_compute_runs_in_transformers(config, why):
    network = random_network(config)
    reference = TransformersEngine(network)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, 100).tolist()
    before = reference.prefill(ids)
    reports = []
    assert fastest_engine(reference, network, reports.append) is reference
    [line] = reports
    assert line.startswith(f"runs in transformers: {why}")
    np.testing.assert_allclose(
        TransformersEngine(network).prefill(ids), before, rtol=1e-4, atol=1e-4 * np.abs(before).max()
    )


@pytest.mark.parametrize("wrong", ["weights", "not a number"])
def test_one_wrong_number_is_detected(monkeypatch, wrong):
    network = random_network(FAST["qwen2"])
    convert = choice.convert

    def damaged(network):
        decoder = convert(network)
        bias = decoder.layers[-1].queries_keys_values.bias
        bias[-1] = np.nan if wrong == "not a number" else bias[-1] + 0.1
        return decoder

    monkeypatch.setattr(choice, "convert", damaged)
    reports = []
    assert not isinstance(fastest_engine(TransformersEngine(network), network, reports.append), NumpyEngine)
    assert "in NumPy, one pass differs" in reports[0]


def test_a_window_over_a_layer_that_has_none_is_found_and_the_networks_own_is_kept(monkeypatch):
    network = random_network(FAST["qwen2, a layer with a window"])
    monkeypatch.setattr("spd_lsp.models.numpy.convert.layer_windows", lambda config: [WINDOW, WINDOW])
    reports = []
    assert not isinstance(fastest_engine(TransformersEngine(network), network, reports.append), NumpyEngine)
    assert "in NumPy, with a short window, one pass differs" in reports[0]
    assert network.config.sliding_window == WINDOW


def test_a_cache_that_is_not_cropped_is_detected(monkeypatch):
    network = random_network(FAST["llama"])
    monkeypatch.setattr("spd_lsp.models.numpy.kv_cache.KVCache.crop", lambda self, length: None)
    reports = []
    fastest_engine(TransformersEngine(network), network, reports.append)
    assert "a cropped cache differs" in reports[0]


def test_mixed_up_rows_are_detected(monkeypatch):
    network = random_network(FAST["llama"])
    monkeypatch.setattr("spd_lsp.models.numpy.kv_cache.SharedPrefixCache.select_rows", lambda self, parents: self)
    reports = []
    fastest_engine(TransformersEngine(network), network, reports.append)
    assert "several rows differs" in reports[0]


def test_the_starter_runs_in_8_bits_where_the_kernel_is_there(monkeypatch):
    engine = load(STARTER, "cpu")
    assert isinstance(engine, NumpyEngine)
    assert all(isinstance(linear, Int8 if load_kernel() else Dense) for linear in engine.decoder.linears)
    monkeypatch.setenv(KERNEL_VARIABLE, "0")
    exact = load(STARTER, "cpu")
    assert all(isinstance(linear, Dense) for linear in exact.decoder.linears)
    ids = list(range(100, 180))
    divergence = kl_divergence(all_logits(engine, ids), all_logits(exact, ids))
    assert divergence < MAX_DIVERGENCE


def test_half_precision_runs_in_transformers():
    network = random_network(Qwen2Config(**SMALL)).to(torch.bfloat16)
    reports = []
    fastest_engine(TransformersEngine(network), network, reports.append)
    assert reports == ["runs in transformers: its weights are torch.bfloat16 on cpu"]

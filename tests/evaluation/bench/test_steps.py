"""A pass is timed beside the bytes it must read, on a tiny model with random weights, captured or not."""

from __future__ import annotations

import pytest
import torch

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bench.random_model import SHAPES, random_model
from spd_lsp.evaluation.bench.setup import weight_bytes
from spd_lsp.evaluation.bench.steps import measure_bandwidth, time_steps
from spd_lsp.models.torch.engine import TorchEngine
from tests.models.torch.test_engine import Traced


def test_a_pass_must_read_its_weights_and_the_keys_and_values_of_all_prompts():
    engine, network, remarks = random_model("tiny", "cpu")
    assert remarks == []
    engine.capture = Traced()
    size = weight_bytes(network)
    bandwidth, steps = time_steps(engine, network, list(range(48)), size, (1, 4), 2)
    assert len(bandwidth) == 3
    assert [(one.requests, len(one.all_logits), len(one.top_logits), len(one.device)) for one in steps] == [
        (1, 2, 2, 2),
        (4, 2, 2, 2),
    ]
    projections, biases, norms = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 128, 64 + 2 * 32, 2 * 64
    assert size == 4 * (512 * 64 + 2 * (projections + biases + norms) + 64)
    position = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, width, bytes
    assert [one.bytes for one in steps] == [size + 48 * position, size + (48 + 45 + 42 + 39) * position]


def test_an_unknown_shape_is_refused():
    with pytest.raises(UserError, match="unknown shape '70b'; choose one of"):
        random_model("70b", "cpu")


def test_the_shapes_have_the_sizes_they_are_named_after():
    def parameters(config):
        width, head = config.hidden_size, config.hidden_size // config.num_attention_heads
        block = 2 * width * (width + head * config.num_key_value_heads) + 3 * width * config.intermediate_size
        tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size * width
        return (config.num_hidden_layers * block + tables) / 1e9

    sizes = {name: round(parameters(SHAPES[name]), 2) for name in ("0.5b", "1.5b", "7b")}
    assert sizes == {"0.5b": 0.49, "1.5b": 1.54, "7b": 7.62}


def test_bandwidth_is_bytes_by_seconds(monkeypatch):
    monkeypatch.setattr("spd_lsp.evaluation.bench.steps._timed", lambda read, repeat, device: [0.75, 0.5])
    bandwidth = measure_bandwidth(torch.device("cpu"), 1 << 16, 2)
    assert bandwidth == {"sum": 2**17, "matrix by vector": 2**17, "copy, both ways": 2**18}


def test_an_engine_that_would_not_be_chosen_is_measured_nevertheless(monkeypatch):
    monkeypatch.setattr(
        "spd_lsp.models.torch.select.find_mismatch", lambda engine, reference: "one pass differs by 2.0%"
    )
    engine, _, remarks = random_model("tiny", "cpu")
    assert isinstance(engine, TorchEngine)
    assert remarks == ["runs in transformers: one pass differs by 2.0%"]

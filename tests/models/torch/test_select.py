"""The torch decoder runs what it predicts as transformers does; all else runs there, and says why.

The choice is made here with networks on the CPU: no GPU takes part.
"""

from __future__ import annotations

from itertools import accumulate, chain, cycle

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    Qwen3Config,
    SmolLM3Config,
)

from spd_lsp.models.torch import select
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.cuda_graphs import CudaCapture
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.torch.select import fastest_engine, in_torch, second_row_is_free, selecting_is_faster
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.models.networks import FAST, SMALL, random_network
from tests.models.torch.test_engine import ONE, Traced, ids_of

DEEP = {**SMALL, "num_hidden_layers": 16}
OTHERS = [
    ("it has no parameter model.embed_tokens.weight", GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4)),
    ("it has a parameter model.layers.0.post_feedforward_layernorm", Gemma2Config(**SMALL, head_dim=8)),
    ("in single precision, one pass", LlamaConfig(**SMALL, sliding_window=64)),
    ("in single precision, one pass differs by", GemmaConfig(**SMALL, head_dim=8)),
    ("in single precision, one pass", GraniteConfig(**SMALL, embedding_multiplier=3.0, residual_multiplier=0.5)),
    ("in single precision, one pass", LlamaConfig(**SMALL, hidden_act="gelu")),
    ("in single precision, one pass", SmolLM3Config(**SMALL, no_rope_layers=[1, 0], pad_token_id=0)),
    # What half precision does not show.
    ("in single precision, one pass", SmolLM3Config(**DEEP, no_rope_layers=[1] * 15 + [0], pad_token_id=0)),
]


def chosen(network, reports, capture=lambda device: Traced()):
    reference = TransformersEngine(network)
    return in_torch(reference, network, reports.append, capture), reference


@pytest.mark.parametrize("config", FAST.values(), ids=FAST.keys())
def test_on_a_cpu_it_runs_in_it_in_single_precision(config):
    network, reports = random_network(config), []
    assert isinstance(fastest_engine(TransformersEngine(network), network, reports.append), TorchEngine)
    assert reports == []


def test_weights_that_are_no_matrices_stay_in_transformers():
    network = random_network(LlamaConfig(**SMALL))
    network.config.quantization_config = {"quant_method": "gptq"}
    reference = TransformersEngine(network)
    assert fastest_engine(reference, network, pytest.fail) is reference


@pytest.mark.parametrize("wrong", ["weights", "not a number"])
def test_one_wrong_number_is_detected(monkeypatch, wrong):
    def damaged(network):
        decoder = convert(network)
        bias = decoder.layers[-1].queries_keys_values.bias
        bias[-1] = np.nan if wrong == "not a number" else bias[-1] + 0.5
        return decoder

    network, reports = random_network(FAST["qwen2"]), []
    monkeypatch.setattr(select, "convert", damaged)
    reference = TransformersEngine(network)
    assert fastest_engine(reference, network, reports.append) is reference
    assert "one pass differs by" in reports[0]


@pytest.mark.parametrize(
    ("broken", "way"),
    [("CachedSequence.crop", "a cropped cache"), ("SequenceRows.select_rows", "several rows")],
)
def test_a_broken_cache_is_detected(monkeypatch, broken, way):
    monkeypatch.setattr(f"spd_lsp.models.torch.kv_cache.{broken}", lambda self, argument: self)
    network, reports = random_network(FAST["llama"]), []
    fastest_engine(TransformersEngine(network), network, reports.append)
    assert f"{way} differs" in reports[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("config", FAST.values(), ids=FAST.keys())
@pytest.mark.slow
def test_what_the_decoder_computes_runs_in_it_in_half_precision(config, dtype):
    reports = []
    engine, _ = chosen(random_network(config).to(dtype), reports, lambda device: None)
    assert isinstance(engine, TorchEngine)
    assert reports == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama, tied", "qwen3"])
def test_usual_steps_are_captured_before_the_first_request(name):
    reports = []
    engine, _ = chosen(random_network(FAST[name]).to(torch.bfloat16), reports)
    assert reports == []
    assert engine.graphs
    before = engine.capture.captured
    engine.prefill(ids_of(700))
    engine.step_top_k([5, 6, 7], np.full(3, 1 / 3), 20, np.arange(60))
    assert engine.capture.captured == before


@pytest.mark.parametrize(("whole", "few", "selects_on_device"), [(3.0, 2.0, True), (2.0, 3.0, False)])
def test_the_device_chooses_among_logits_where_that_takes_less_time(whole, few, selects_on_device):
    engine = TorchEngine(convert(random_network(FAST["qwen2"])))
    seconds = accumulate(chain([0.0], cycle([whole, 0.0, few, 0.0])))  # a step of each, and nothing in between
    assert selecting_is_faster(engine, lambda: next(seconds)) is selects_on_device


@pytest.mark.parametrize(("two", "is_free"), [(1.0, True), (1.15, True), (1.2, False), (2.0, False)])
def test_a_second_row_is_free_where_it_takes_hardly_any_time(two, is_free):
    engine = TorchEngine(convert(random_network(FAST["qwen2"])))
    passes, forward_batch = [], engine.forward_batch
    engine.forward_batch = lambda inputs: passes.append(len(inputs[0].mixtures)) or forward_batch(inputs)
    seconds = accumulate(chain([0.0], cycle([1.0, 0.0, two, 0.0])))  # a step of one row, and of two
    assert second_row_is_free(engine, lambda: next(seconds)) is is_free
    assert sum(passes) == 6 * (1 + 2 + 2), "six trials"


def test_a_device_that_selects_wrongly_is_not_used_for_selection():
    class Wrong(TorchEngine):
        def forward_batch(self, inputs):
            return [logits + 0.01 * (inputs[0].top_k is not None) for logits in super().forward_batch(inputs)]

    seconds = accumulate(chain([0.0], cycle([3.0, 0.0, 2.0, 0.0])))
    assert not selecting_is_faster(Wrong(convert(random_network(FAST["qwen2"]))), lambda: next(seconds))


@pytest.mark.parametrize(("why", "config"), OTHERS)
def test_what_it_does_not_compute_runs_in_transformers(why, config):
    reports = []
    engine, reference = chosen(random_network(config).to(torch.bfloat16), reports)
    assert engine is reference
    [line] = reports
    assert line.startswith(f"runs in transformers: {why}")
    assert np.isfinite(engine.prefill(ids_of(40))).all()


def test_a_kind_that_cannot_be_made_small_runs_in_transformers(monkeypatch):
    def refuses(config, dtype):
        raise ValueError("expected a width of 4096, found 32\nand more")

    network, reports = random_network(FAST["llama"]), []
    monkeypatch.setattr("spd_lsp.models.torch.small_network.AutoModelForCausalLM.from_config", refuses)
    engine, reference = chosen(network, reports)
    assert engine is reference
    assert reports == [
        "runs in transformers: no small model of its kind can be made (expected a width of 4096, found 32)"
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_rounding_alone_is_no_mistake(seed):
    reports = []
    network = random_network(Qwen3Config(**DEEP, head_dim=16), seed).to(torch.bfloat16)
    assert isinstance(chosen(network, reports, lambda device: None)[0], TorchEngine), reports


def test_the_self_test_leaves_the_seed_of_samples_alone():
    network = random_network(FAST["llama"])
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    chosen(network, [], lambda device: None)
    assert torch.equal(torch.rand(2), expected)


def test_a_mistake_in_steps_alone_is_detected(monkeypatch):
    """A capture that replays what it saw the first time."""

    def frozen(work):
        found = work()
        return lambda: found

    reports = []
    engine, reference = chosen(random_network(FAST["qwen2"]), reports, lambda device: frozen)
    assert engine is reference
    assert "step by step differs by" in reports[0]


def test_a_gpu_without_memory_for_the_slots_runs_transformers(monkeypatch):
    def full(self, rows, room):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    monkeypatch.setattr("spd_lsp.models.torch.kv_cache.SlotPool.grow", full)
    reports = []
    engine, reference = chosen(random_network(FAST["qwen2"]), reports)
    assert engine is reference
    assert reports == ["runs in transformers: CUDA out of memory. Tried to allocate 2 GiB"]


def test_a_part_that_is_not_a_number_is_detected():
    network = random_network(FAST["qwen2"]).to(torch.bfloat16)

    class Broken(Traced):
        def __call__(self, work):
            replay = super().__call__(work)
            return lambda: replay().fill_(torch.nan)

    reports = []
    assert isinstance(chosen(network, reports, lambda device: Broken())[0], TransformersEngine)
    assert "differs by nan" in reports[0]


def test_without_captures_steps_run_eagerly_in_the_decoder():
    def fails(work):
        raise RuntimeError("no")

    reports = []
    engine, _ = chosen(random_network(FAST["llama"]), reports, lambda device: fails)
    assert isinstance(engine, TorchEngine)
    assert reports == ["runs step by step: capturing one failed (no)"]
    engine.prefill(ids_of(5))
    assert np.isfinite(engine.step([5], ONE)).all()


def test_networks_on_cuda_use_this_selection(monkeypatch):
    class OnCuda:
        config = None
        device = torch.device("cuda", 0)

    monkeypatch.setattr(select, "in_torch", lambda *given: given)
    report, network = [].append, OnCuda()
    assert fastest_engine("reference", network, report) == ("reference", network, report, CudaCapture)

"""llama.cpp reads the same weights: what it predicts is what transformers predicts, in every row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from spd_lsp.evaluation.bench.gguf_file import Unsupported, gguf_name, interleave_halves
from spd_lsp.evaluation.bench.llama_cpp import LlamaCpp, top_tokens
from spd_lsp.models.llama import library
from spd_lsp.models.llama.library import Unavailable

PROMPT = (5, 3, 8, 1, 13, 21, 34, 2)
SHAPE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}


def network(kind: str, folder, dtype=torch.float32, **changed):
    """A small random model, stored."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE | changed)).to(dtype)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    model.save_pretrained(folder)
    return model.float().eval()


def logits(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0, -1].numpy()


@pytest.fixture(scope="module", autouse=True)
def installed():
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("mistral", {}),
        ("qwen2", {}),
        ("qwen3", {}),
    ],
)
def test_every_row_predicts_what_transformers_does(kind, changed, tmp_path):
    model = network(kind, tmp_path, **{"tie_word_embeddings": False} | changed)
    found = LlamaCpp(tmp_path, rows=3, positions=20, threads=1)
    np.testing.assert_allclose(found.prefill(PROMPT, 3), logits(model, PROMPT), atol=0.05)
    rows = found.step(np.array([7, 9, 11]), len(PROMPT))
    for token, row in zip([7, 9, 11], rows, strict=True):
        np.testing.assert_allclose(row, logits(model, [*PROMPT, token]), atol=0.05)


def test_drafts_are_greedy_continuations_and_a_second_time_the_same(tmp_path):
    model = network("llama", tmp_path)
    found = LlamaCpp(tmp_path, rows=2, positions=20, threads=1)
    drafts = found.drafts(PROMPT, 2, 4, lambda: None)
    assert drafts[:, 0].tolist() == top_tokens(logits(model, PROMPT), 2).tolist()
    for draft in drafts.tolist():
        assert draft[1:] == [int(logits(model, [*PROMPT, *draft[:n]]).argmax()) for n in range(1, 4)]
    assert found.drafts(PROMPT, 2, 4, lambda: None).tolist() == drafts.tolist()


def test_weights_stored_in_half_precision_stay_so(tmp_path):
    network("llama", tmp_path, torch.float16)
    assert "weights in half precision" in str(LlamaCpp(tmp_path, rows=1, positions=16, threads=1))


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("gpt_neox", {"num_key_value_heads": 4}, "gpt_neox"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "linear"),
    ],
)
def test_a_model_of_another_shape_is_left_out_with_the_reason(kind, changed, message, tmp_path):
    network(kind, tmp_path, **changed)
    with pytest.raises(Unsupported, match=message):
        LlamaCpp(tmp_path, rows=1, positions=16, threads=1)


def test_a_library_whose_settings_lie_elsewhere_is_not_used(tmp_path, monkeypatch):
    network("llama", tmp_path)
    monkeypatch.setattr(library, "_DEFAULT_CONTEXT_SIZES", (1, 2, 3, 4))
    with pytest.raises(Unavailable, match="unknown layout"):
        LlamaCpp(tmp_path, rows=1, positions=16, threads=1)


def test_names_and_rotations():
    assert gguf_name("model.layers.3.mlp.up_proj.weight") == "blk.3.ffn_up.weight"
    with pytest.raises(Unsupported, match="wte"):
        gguf_name("transformer.wte.weight")
    assert interleave_halves(np.arange(8.0), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_the_likeliest_come_best_first():
    assert top_tokens(np.array([0.1, 0.5, 0.3, 0.9, 0.0]), 3).tolist() == [3, 1, 2]

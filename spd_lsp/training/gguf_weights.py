"""Llama weights between a GGUF file and transformers: one goes in, the other comes out.

llama.cpp stores the rows of the query and key matrices in another order (its rotary embedding turns neighbours,
that of transformers turns halves); all else differs in names alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import LlamaConfig, LlamaForCausalLM

_NAMES = {  # of a layer's weights
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROTATED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
F32 = npt.NDArray[np.float32]


def names(config: LlamaConfig) -> dict[str, str]:
    """The name of each weight in a GGUF file, and in transformers."""
    layers = {
        f"blk.{layer}.{ours}.weight": f"model.layers.{layer}.{theirs}.weight"
        for layer in range(config.num_hidden_layers)
        for ours, theirs in _NAMES.items()
    }
    return {
        "token_embd.weight": "model.embed_tokens.weight",
        **layers,
        "output_norm.weight": "model.norm.weight",
    }


def read_model(path: Path) -> LlamaForCausalLM:
    """The model in a GGUF file, its weights dequantised."""
    reader = GGUFReader(path)
    config = _read_config({name: field.contents() for name, field in reader.fields.items()})
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    model = LlamaForCausalLM(config)
    weights = dict(model.named_parameters())
    for ours, theirs in names(config).items():
        values = dequantize(tensors[ours].data, tensors[ours].tensor_type)
        weights[theirs].data.copy_(torch.tensor(_reorder(ours, values, config, (-1, 2))))
    return model


def _read_config(metadata: dict[str, Any]) -> LlamaConfig:
    """The shape of a model, as transformers says it."""

    def number(name: str) -> Any:
        return metadata[f"llama.{name}"]

    return LlamaConfig(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden_size=number("embedding_length"),
        intermediate_size=number("feed_forward_length"),
        num_hidden_layers=number("block_count"),
        num_attention_heads=number("attention.head_count"),
        num_key_value_heads=number("attention.head_count_kv"),
        max_position_embeddings=number("context_length"),
        rms_norm_eps=number("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": number("rope.freq_base")},
        tie_word_embeddings=True,
    )


def weights_of(model: LlamaForCausalLM) -> Iterator[tuple[str, F32]]:
    """The weights of a model by their names in a GGUF file."""
    weights = dict(model.named_parameters())
    for ours, theirs in names(model.config).items():
        yield ours, _reorder(ours, weights[theirs].detach().float().numpy(), model.config, (2, -1))


def _reorder(name: str, values: F32, config: LlamaConfig, parts: tuple[int, int]) -> F32:
    """The weight with each head's rows split into these parts and transposed, if it is one that is rotated."""
    kind = name.split(".")[-2]
    if kind not in _ROTATED:
        return values
    heads = getattr(config, _ROTATED[kind])
    width = values.shape[1]
    reordered: F32 = values.reshape(heads, *parts, width).swapaxes(1, 2).reshape(-1, width)
    return reordered

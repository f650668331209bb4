"""Convert a model folder to a GGUF file for llama.cpp: the same weights under other names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats

# llama.cpp's name of an architecture, and whether it interleaves the two halves of the rotary embedding.
_ARCHITECTURES = {
    "llama": ("llama", True),
    "mistral": ("llama", True),
    "qwen2": ("qwen2", False),
    "qwen3": ("qwen3", False),
}
_NAMES_OUTSIDE_LAYERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_NAMES_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class Unsupported(Exception):
    """llama.cpp cannot be measured here; the message is the reason."""


def _write_no_vocabulary(writer: Any) -> None:
    writer.add_tokenizer_model("no_vocab")


def write_gguf(folder: Path, path: Path, write_vocabulary: Callable[[Any], None] = _write_no_vocabulary) -> str:
    """Write the GGUF file. Return the precision of its matrices: half if they are stored so, else single."""
    from gguf import GGUFWriter

    from spd_lsp.models.checkpoint.model_config import read_config

    config = read_config(folder)
    if config.model_type not in _ARCHITECTURES:
        raise Unsupported(
            f"models of type {config.model_type} are not supported, only {', '.join(_ARCHITECTURES)}"
        )
    rotation = config.rope_parameters
    if rotation["rope_type"] != "default":
        raise Unsupported(f"position embeddings of type {rotation['rope_type']} are not supported")
    architecture, interleaved = _ARCHITECTURES[config.model_type]
    writer = GGUFWriter(path, architecture)
    _write_hyperparameters(writer, config, rotation["rope_theta"])
    write_vocabulary(writer)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    precision = "float32"
    for name, weight in _read_weights(folder):
        new_name = gguf_name(name)
        if interleaved and (n_heads := heads.get(new_name.split(".")[-2])):
            weight = interleave_halves(weight, n_heads)
        if weight.ndim == 2:
            precision = str(weight.dtype)
        writer.add_tensor(
            new_name, np.ascontiguousarray(weight if weight.ndim == 2 else weight.astype(np.float32))
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return precision


def _write_hyperparameters(writer: Any, config: Any, theta: float) -> None:
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(theta)
    writer.add_rope_dimension_count(width)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_vocab_size(config.vocab_size)


def _read_weights(folder: Path) -> Iterator[tuple[str, Floats]]:
    """Yield all parameters; bfloat16 becomes float32, which represents it exactly."""
    import torch
    from safetensors import safe_open

    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                tensor = weights.get_tensor(name)
                yield name, (tensor if tensor.dtype == torch.float16 else tensor.float()).numpy()


def gguf_name(name: str) -> str:
    """Rename a parameter for llama.cpp. Example: `model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`."""
    stem, _, kind = name.rpartition(".")
    if stem in _NAMES_OUTSIDE_LAYERS:
        return f"{_NAMES_OUTSIDE_LAYERS[stem]}.{kind}"
    parts = stem.split(".")
    if parts[:2] == ["model", "layers"] and (inside := ".".join(parts[3:])) in _NAMES_IN_LAYER:
        return f"blk.{parts[2]}.{_NAMES_IN_LAYER[inside]}.{kind}"
    raise Unsupported(f"the parameter {name} is not supported")


def interleave_halves(weight: Floats, heads: int) -> Floats:
    """Reorder the outputs of each head: first, middle, second, middle + 1 ...; shapes [H * W, I] or [H * W]."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])  # [H, 2, W / 2, ...]
    interleaved: Floats = halves.swapaxes(1, 2).reshape(weight.shape)
    return interleaved

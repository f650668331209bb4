"""A Llama and its byte-level tokenizer as one GGUF file: read into transformers and tokenizers, and written.

llama.cpp stores the rows of the query and key matrices in another order (its rotary embedding turns neighbours,
that of transformers turns halves). Layers are written in Q4_0, the embedding in Q8_0: it is the output, too, and
there errors are not averaged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFReader, GGUFWriter, TokenType, get_tensor_name_map
from gguf.quants import dequantize, quantize
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from spd_lsp.training.rounding import round_to_four_bits
from spd_lsp.training.tokenizer import END_ID

_CUTS = "smollm"  # llama.cpp's name: single digits, everything else split as in GPT-2
_ROTATED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
_BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
PRE_TOKENIZER = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), _BYTE_LEVEL])
F32 = npt.NDArray[np.float32]


def read_model(path: Path) -> LlamaForCausalLM:
    """The model in a GGUF file, its weights dequantised."""
    reader = GGUFReader(path)
    metadata = {name.removeprefix("llama."): field.contents() for name, field in reader.fields.items()}
    config = LlamaConfig(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden_size=metadata["embedding_length"],
        intermediate_size=metadata["feed_forward_length"],
        num_hidden_layers=metadata["block_count"],
        num_attention_heads=metadata["attention.head_count"],
        num_key_value_heads=metadata["attention.head_count_kv"],
        max_position_embeddings=metadata["context_length"],
        rms_norm_eps=metadata["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": metadata["rope.freq_base"]},
        tie_word_embeddings=True,
    )
    stored = {tensor.name: tensor for tensor in reader.tensors}
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        tensor = stored[_stored_name(name, config)]
        values = dequantize(tensor.data, tensor.tensor_type)
        parameter.data.copy_(torch.tensor(_reorder(name, values, config, (-1, 2))))
    return model


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a GGUF file whose text is cut as SmolLM2 cuts it."""
    fields = GGUFReader(path).fields
    names, merges, kinds = (
        fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges", "token_type")
    )
    vocabulary = {name: i for i, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = PRE_TOKENIZER
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [name for name, kind in zip(names, kinds, strict=True) if kind == TokenType.CONTROL]
    )
    return tokenizer


def write_gguf(model: LlamaForCausalLM, tokenizer: Tokenizer, name: str, path: Path) -> None:
    """Write the file, or replace it. The same model gives the same bytes."""
    temporary = path.with_name(f"new.{path.name}")
    writer = GGUFWriter(temporary, "llama")
    writer.add_name(name)

    # 1. The shape.
    config: Any = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)

    # 2. The tokenizer.
    rules = json.loads(tokenizer.to_str())
    special = {token["content"] for token in rules["added_tokens"]}
    names = sorted(rules["model"]["vocab"], key=rules["model"]["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_CUTS)
    writer.add_token_list(names)
    writer.add_token_types([TokenType.CONTROL if name in special else TokenType.NORMAL for name in names])
    writer.add_token_merges([" ".join(pair) for pair in rules["model"]["merges"]])
    writer.add_bos_token_id(END_ID)
    writer.add_eos_token_id(END_ID)
    writer.add_add_bos_token(False)

    # 3. The weights.
    for title, parameter in model.named_parameters():
        weight = parameter.detach().float()
        kind = GGMLQuantizationType.F32 if weight.ndim == 1 else GGMLQuantizationType.Q8_0
        if ".layers." in title and weight.ndim == 2:
            kind = GGMLQuantizationType.Q4_0
            weight = round_to_four_bits(weight)  # gguf rounds differently and then finds nothing to round
        values = np.ascontiguousarray(_reorder(title, weight.numpy(), config, (2, -1)))
        writer.add_tensor(_stored_name(title, config), quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.replace(path)


def _stored_name(name: str, config: Any) -> str:
    """Example: `model.layers.1.self_attn.q_proj.weight` -> `blk.1.attn_q.weight`"""
    known = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    return str(known.get_name(name, try_suffixes=(".weight",)))


def _reorder(name: str, values: F32, config: Any, parts: tuple[int, int]) -> F32:
    """Return a query or key matrix with each head's rows split and transposed; any other weight as it is."""
    kind = name.split(".")[-2]
    if kind not in _ROTATED:
        return values
    heads = values.reshape(getattr(config, _ROTATED[kind]), *parts, values.shape[1])
    reordered: F32 = heads.swapaxes(1, 2).reshape(values.shape)
    return reordered

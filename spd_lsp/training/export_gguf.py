"""Write a model and its tokenizer as one GGUF file, in four bits a weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from spd_lsp.models.llama.pre_tokenizers import OWN_CUTS
from spd_lsp.training import four_bits
from spd_lsp.training.documents import END_ID
from spd_lsp.training.gguf_weights import weights_of

_ARCHITECTURE = "llama"
_CUTS = "smollm"  # llama.cpp's word for how the text is cut before merging; it has none for other ways
_EMBEDDING = GGMLQuantizationType.Q8_0  # it is the output, too, and there errors are not averaged
_MATRIX = GGMLQuantizationType.Q4_0


def write_gguf(
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    name: str,
    path: Path,
    matrix: GGMLQuantizationType = _MATRIX,
) -> None:
    """Write the file, or replace it. The same model gives the same bytes."""
    temporary = path.with_name(f"new.{path.name}")
    writer = GGUFWriter(temporary, _ARCHITECTURE)
    writer.add_name(name)
    _add_shape(writer, model)
    _add_tokenizer(writer, tokenizer)
    for title, values in weights_of(model):
        kind = GGMLQuantizationType.F32 if values.ndim == 1 else _EMBEDDING if "embd" in title else matrix
        values = np.ascontiguousarray(values)
        stored = four_bits.quantise(values) if kind == GGMLQuantizationType.Q4_0 else quantize(values, kind)
        writer.add_tensor(title, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.replace(path)


def _add_shape(writer: GGUFWriter, model: LlamaForCausalLM) -> None:
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


def _add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    rules = json.loads(tokenizer.to_str())
    special = {token["content"] for token in rules["added_tokens"]}
    names = sorted(rules["model"]["vocab"], key=rules["model"]["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_CUTS)
    writer.add_array(OWN_CUTS, [each["pattern"]["Regex"] for each in rules["pre_tokenizer"]["pretokenizers"][:-1]])
    writer.add_token_list(names)
    writer.add_token_types([TokenType.CONTROL if name in special else TokenType.NORMAL for name in names])
    writer.add_token_merges([" ".join(pair) for pair in rules["model"]["merges"]])
    writer.add_bos_token_id(END_ID)
    writer.add_eos_token_id(END_ID)
    writer.add_add_bos_token(False)

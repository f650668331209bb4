"""GGUF files with random weights and the starter's vocabulary, and the tokenizer they are made of."""

from __future__ import annotations

import ctypes
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tests.conftest import STARTER_FILE, STARTER_FILES
from tests.pre_tokenizers import PATTERNS, pre_tokenizer

WIDTH, LAYERS, HEADS, KEY_HEADS, FEED_FORWARD, CONTEXT = 256, 2, 4, 2, 256, 1024
STATEFUL = ("lfm2", "granitehybrid")  # the first layer of which has a state: of a convolution, of Mamba 2
CONVOLVED, INNER, STATE, STATE_HEADS = 4, 512, 16, 8
SHAPE = {  # in transformers
    "vocab_size": 16384,
    "hidden_size": WIDTH,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
IN_TRANSFORMERS = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
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
MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>")


def vocabulary() -> dict:
    """The starter's, with the marks of Qwen2.5-Coder."""
    rules = json.loads((STARTER_FILES / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary, taken = rules["model"]["vocab"], {token["content"]: token for token in rules["added_tokens"]}
    for mark, (old, token) in zip(MARKS, list(taken.items())[1:], strict=True):
        number = vocabulary.pop(old)
        vocabulary[mark] = number
        token["content"] = mark
    return rules


def hugging_face_tokenizer(patterns: str = "Qwen") -> Tokenizer:
    """The tokenizer.json from which `write_gguf` takes the vocabulary."""
    tokenizer = Tokenizer.from_str(json.dumps(vocabulary()))
    tokenizer.pre_tokenizer = pre_tokenizer(PATTERNS[patterns])
    return tokenizer


def write_gguf(
    path: Path,
    architecture: str = "qwen2",
    kind: str = "F16",
    *,
    seed: int = 0,
    pre: str = "qwen2",
    write_vocabulary: Callable[[Any], int] | None = None,
    **over,
) -> Path:
    """Write a model of some data type. over: metadata to replace; write_vocabulary returns its size.

    per_part: weights in each file but the first one, which has none; 0: all in one file.
    """
    from gguf import GGUFWriter, LlamaFileType

    per_part = over.get("per_part", 0)
    writer = GGUFWriter(path, architecture, split_max_tensors=per_part, small_first_shard=per_part > 0)
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_context_length(over.get("context", CONTEXT))
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(over.get("layers", LAYERS))
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    has_state = architecture in STATEFUL
    writer.add_head_count_kv([0, *[KEY_HEADS] * (LAYERS - 1)] if has_state else over.get("key_heads", KEY_HEADS))
    if architecture == "lfm2":
        writer.add_shortconv_l_cache(CONVOLVED)
    elif has_state:
        writer.add_ssm_conv_kernel(CONVOLVED)
        writer.add_ssm_inner_size(INNER)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(STATE_HEADS)
        writer.add_ssm_group_count(1)
        writer.add_vocab_size(SHAPE["vocab_size"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    if write_vocabulary is None:
        size = _write_vocabulary(writer, vocabulary(), pre)
        if bos := over.get("bos"):
            writer.add_bos_token_id(bos)
        writer.add_add_bos_token(bool(bos))
    else:
        size = write_vocabulary(writer)
    for name, shape in _shapes(architecture, size).items():
        _write_weight(writer, name, _random_weight(name, shape, seed), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def smallest_gguf() -> bytes:
    """A file that names its architecture and has a weight."""
    from gguf import GGUFWriter

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.gguf")
        writer = GGUFWriter(path, "qwen2")
        writer.add_tensor("token_embd.weight", np.zeros((8, 32), np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def write_starter(path: Path) -> Path:
    """A copy of the starter's file."""
    return Path(shutil.copy(STARTER_FILE, path))


def _write_vocabulary(writer, rules: dict, pre: str) -> int:
    names = sorted(rules["model"]["vocab"], key=rules["model"]["vocab"].__getitem__)
    special = {token["id"] for token in rules["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(names)
    writer.add_token_types([3 if number in special else 1 for number in range(len(names))])
    writer.add_token_merges([" ".join(pair) for pair in rules["model"]["merges"]])
    writer.add_eos_token_id(0)
    return len(names)


def _shapes(architecture: str, size: int) -> dict[str, tuple[int, ...]]:
    keys = WIDTH // HEADS * KEY_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (size, WIDTH), "output_norm.weight": (WIDTH,)}
    if architecture == "lfm2":
        shapes["token_embd_norm.weight"] = shapes.pop("output_norm.weight")
    for layer in range(LAYERS):
        if architecture in STATEFUL and layer == 0:
            mixer = _state_shapes(architecture)
        else:
            mixer = {
                "attn_q.weight": (WIDTH, WIDTH),
                "attn_k.weight": (keys, WIDTH),
                "attn_v.weight": (keys, WIDTH),
                "attn_output.weight": (WIDTH, WIDTH),
            }
            if architecture == "lfm2":
                mixer |= {f"attn_{one}_norm.weight": (WIDTH // HEADS,) for one in "qk"}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in mixer.items()}
        own = {
            "attn_norm": (WIDTH,),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (FEED_FORWARD, WIDTH),
            "ffn_up": (FEED_FORWARD, WIDTH),
            "ffn_down": (WIDTH, FEED_FORWARD),
        }
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in own.items()}
        if architecture == "qwen2":
            biases = {"attn_q": WIDTH, "attn_k": keys, "attn_v": keys}
            shapes |= {f"blk.{layer}.{name}.bias": (count,) for name, count in biases.items()}
    return shapes


def _state_shapes(architecture: str) -> dict[str, tuple[int, ...]]:
    if architecture == "lfm2":
        return {
            "shortconv.conv.weight": (WIDTH, CONVOLVED),
            "shortconv.in_proj.weight": (3 * WIDTH, WIDTH),
            "shortconv.out_proj.weight": (WIDTH, WIDTH),
        }
    channels = INNER + 2 * STATE
    return {
        "ssm_in.weight": (INNER + channels + STATE_HEADS, WIDTH),
        "ssm_conv1d.weight": (channels, CONVOLVED),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (STATE_HEADS,),
        "ssm_a": (STATE_HEADS, 1),
        "ssm_d": (STATE_HEADS, 1),
        "ssm_norm.weight": (INNER,),
        "ssm_out.weight": (WIDTH, INNER),
    }


def _random_weight(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    if "norm" in name:
        return np.ones(shape, np.float32)
    random = np.random.default_rng([seed, *name.encode()])
    return random.normal(scale=0.08, size=shape).astype(np.float32)


def _write_weight(writer, name: str, weight: np.ndarray, kind: str) -> None:
    from gguf import GGMLQuantizationType

    if weight.ndim == 1 or kind == "F32":
        writer.add_tensor(name, weight)
    elif kind == "F16":
        writer.add_tensor(name, weight.astype(np.float16))
    else:
        dtype = GGMLQuantizationType[kind]
        writer.add_tensor(name, quantize(weight, dtype), raw_dtype=dtype)


def quantize(weight: np.ndarray, dtype) -> np.ndarray:
    """Weights as llama.cpp itself quantises them; `gguf` writes only some data types."""
    from gguf import GGML_QUANT_SIZES

    from spd_lsp.models.llama.library import load_library

    block, size = GGML_QUANT_SIZES[dtype]
    rows, columns = weight.shape
    made = np.empty((rows, columns // block * size), np.uint8)
    library = load_library()
    chunk = library.ggml_quantize_chunk
    chunk.restype = ctypes.c_size_t
    chunk.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    assert chunk(int(dtype), weight.ctypes.data, made.ctypes.data, 0, rows, columns, None) == made.nbytes
    return made


def transformers_weights() -> dict:
    """The weights of a qwen2 file in single precision, by the names that transformers gives them."""
    import torch

    found = {}
    for name, shape in _shapes("qwen2", SHAPE["vocab_size"]).items():
        *layer, own, kind = name.split(".")
        place = f"layers.{layer[1]}." if layer else ""
        found[f"model.{place}{IN_TRANSFORMERS[own]}.{kind}"] = torch.from_numpy(_random_weight(name, shape, 0))
    return found

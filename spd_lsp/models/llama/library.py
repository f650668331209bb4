"""llama.cpp's C interface. The compiled library comes with the package `xllamacpp` and is called directly.

Functions and structures are those of `llama.h`, `gguf.h` and `ggml.h` in one month's versions; others are refused.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_void_p,
)
from functools import cache
from importlib.metadata import version
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.extras import install_command

_INSTALL = install_command()
_VERSION = "2026.10."  # as in pyproject.toml; the tests compare the structures with another version
ALL_LAYERS = -1  # on the GPU, where the library was built for one
MAX_SEQUENCES = 256  # of one context, as the library is compiled
UNKNOWN, UNUSED, NORMAL, CONTROL, USER_DEFINED = (
    1 << bit for bit in range(5)
)  # kinds of a token; it may have more
_READ, _MAPPED = 0, 1  # modes of loading
_ERROR = 4  # level of a log message
_ROOM = ("later_fields", c_uint8 * 128)  # of a newer library, which must not write beyond the structure


class ModelSettings(ctypes.Structure):
    """`llama_model_params`."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
        _ROOM,
    )


class ContextSettings(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("unnamed", c_void_p),  # NULL by default
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
        _ROOM,
    )


class GgufSettings(ctypes.Structure):
    """`gguf_init_params`."""

    _fields_ = (("no_alloc", c_bool), ("ctx", c_void_p))


class Batch(ctypes.Structure):
    """`llama_batch`: tokens or embeddings, their positions and sequences, and after which logits are computed."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    )


_LogCallback = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
_SEQUENCE = [c_void_p, c_int32]
_ENTRY = [c_void_p, c_int64]
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_model_default_params": (ModelSettings, []),
    "llama_context_default_params": (ContextSettings, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, ModelSettings]),
    "llama_init_from_model": (c_void_p, [c_void_p, ContextSettings]),
    "llama_free": (None, [c_void_p]),
    "llama_model_free": (None, [c_void_p]),
    "llama_model_n_ctx_train": (c_int32, [c_void_p]),
    "llama_model_n_embd_inp": (c_int32, [c_void_p]),
    "llama_model_is_recurrent": (c_bool, [c_void_p]),
    "llama_model_is_hybrid": (c_bool, [c_void_p]),
    "llama_model_is_diffusion": (c_bool, [c_void_p]),
    "llama_model_has_encoder": (c_bool, [c_void_p]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_seq_rm": (c_bool, [c_void_p, c_int32, c_int32, c_int32]),
    "llama_memory_seq_pos_max": (c_int32, [c_void_p, c_int32]),
    "llama_memory_seq_cp": (None, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "llama_state_seq_get_size": (c_size_t, _SEQUENCE),
    "llama_state_seq_get_data": (c_size_t, [c_void_p, c_void_p, c_size_t, c_int32]),
    "llama_state_seq_set_data": (c_size_t, [c_void_p, c_void_p, c_size_t, c_int32]),
    "llama_set_n_threads": (None, [c_void_p, c_int32, c_int32]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_vocab_bos": (c_int32, [c_void_p]),
    "llama_vocab_eos": (c_int32, [c_void_p]),
    "llama_vocab_fim_pre": (c_int32, [c_void_p]),
    "llama_vocab_fim_suf": (c_int32, [c_void_p]),
    "llama_vocab_fim_mid": (c_int32, [c_void_p]),
    "llama_vocab_get_add_bos": (c_bool, [c_void_p]),
    "llama_vocab_get_attr": (c_int32, [c_void_p, c_int32]),
    "llama_vocab_get_text": (c_char_p, [c_void_p, c_int32]),
    "llama_token_to_piece": (c_int32, [c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool]),
    "llama_model_meta_val_str": (c_int32, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, c_void_p, c_int32, c_bool, c_bool]),
    "llama_supports_gpu_offload": (c_bool, []),
    "llama_log_set": (None, [_LogCallback, c_void_p]),
    "gguf_init_from_file": (c_void_p, [c_char_p, GgufSettings]),
    "gguf_free": (None, [c_void_p]),
    "gguf_find_tensor": (c_int64, [c_void_p, c_char_p]),
    "gguf_find_key": (c_int64, [c_void_p, c_char_p]),
    "gguf_get_kv_type": (c_int32, _ENTRY),
    "gguf_get_val_str": (c_char_p, _ENTRY),
    "gguf_get_n_tensors": (c_int64, [c_void_p]),
    "gguf_get_data_offset": (c_size_t, [c_void_p]),
    "gguf_get_tensor_offset": (c_size_t, _ENTRY),
    "gguf_get_tensor_size": (c_size_t, _ENTRY),
    "gguf_get_tensor_ne": (POINTER(c_int64), _ENTRY),
    "gguf_get_tensor_type": (c_int32, _ENTRY),
    "ggml_type_name": (c_char_p, [c_int32]),
}
_errors: deque[str] = deque(maxlen=4)  # the library's last messages


def _note_log(level: int, text: bytes, data: Any) -> None:
    """Keep an error message."""
    if level == _ERROR:
        _errors.append(text.decode("utf-8", "replace").strip())


_log_callback = _LogCallback(_note_log)  # must outlive the library's pointer to it


@cache
def load_library() -> Any:
    """Return the library with its functions declared; `UserError` if it is missing or of another version."""
    try:
        import xllamacpp.xllamacpp as package
    except ImportError as error:
        raise UserError(
            f"models need llama.cpp here, and {error.name} is not installed; run: {_INSTALL}, or "
            "complete from n-grams alone with --model none"
        ) from error
    if not version("xllamacpp").startswith(_VERSION):
        raise UserError(
            f"xllamacpp {version('xllamacpp')} may have other structures than spd-lsp knows; install the version "
            f"that it asks for: {_INSTALL}"
        )
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # else the library starts a debugger where it gives up
    library = ctypes.CDLL(package.__file__)
    for name, (result_type, argument_types) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result_type, argument_types
    library.llama_log_set(_log_callback, None)
    return library


def last_error() -> str:
    """Return the library's first error since the last call: it names the cause, later ones are consequences."""
    messages = [*_errors]
    _errors.clear()
    return messages[0].partition(": ")[2] or messages[0] if messages else "no reason given"


def model_settings(gpu_layers: int, *, vocab_only: bool, mapped: bool) -> ModelSettings:
    """Return the settings that load a model with this many layers on the GPU, or its vocabulary alone."""
    settings: ModelSettings = load_library().llama_model_default_params()
    settings.n_gpu_layers = gpu_layers
    settings.load_mode = _MAPPED if mapped else _READ
    settings.vocab_only = vocab_only
    return settings


def context_settings(positions: int, sequences: int) -> ContextSettings:
    """Return the settings of a context whose sequences share one cache of this many positions."""
    settings: ContextSettings = load_library().llama_context_default_params()
    settings.n_ctx = positions
    settings.n_batch = max(positions, settings.n_batch)
    settings.n_seq_max = sequences
    settings.kv_unified = True  # with one copy of what sequences have in common
    return settings

"""llama.cpp's C interface. The compiled library comes with the package `xllamacpp` and is called directly.

Functions and structures are those of `llama.h`, `gguf.h` and `ggml.h` in one month's versions; others are refused.
"""

from __future__ import annotations

import ctypes
import os
import sys
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
_READ, _MAPPED = 0, 1  # modes of loading
_ERROR = 4  # level of a log message
_LATER = "later_fields"  # of a newer library, which must not write beyond the structure


def _fields(*runs: tuple[Any, str]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a structure, given runs of fields of one type in order."""
    return tuple((name, kind) for kind, names in runs for name in names.split())


class ModelSettings(ctypes.Structure):
    """`llama_model_params`."""

    _fields_ = _fields(
        (c_void_p, "devices tensor_buft_overrides"),
        (c_int32, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
        (c_void_p, "tensor_split progress_callback progress_callback_user_data kv_overrides"),
        (c_bool, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
        (c_uint8 * 128, _LATER),
    )


class ContextSettings(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = _fields(
        (c_uint32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq"),
        (c_int32, "n_threads n_threads_batch"),
        (c_int32, "ctx_type rope_scaling_type pooling_type attention_type flash_attn_type"),
        (c_float, "rope_freq_base rope_freq_scale"),
        (c_float, "yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow"),
        (c_uint32, "yarn_orig_ctx"),
        (c_float, "defrag_thold"),
        (c_void_p, "cb_eval cb_eval_user_data"),
        (c_int32, "type_k type_v"),
        (c_void_p, "abort_callback abort_callback_data unnamed"),  # the last one is NULL by default
        (c_bool, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        (c_void_p, "samplers"),
        (c_size_t, "n_samplers"),
        (c_void_p, "ctx_other"),
        (c_uint8 * 128, _LATER),
    )


class GgufSettings(ctypes.Structure):
    """`gguf_init_params`."""

    _fields_ = _fields((c_bool, "no_alloc"), (c_void_p, "ctx"))


class Batch(ctypes.Structure):
    """`llama_batch`: tokens or embeddings, their positions and sequences, and after which logits are computed."""

    _fields_ = _fields((c_int32, "n_tokens"), (c_void_p, "token embd pos n_seq_id seq_id logits"))


_LogCallback = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
_ENTRY = [c_void_p, c_int64]
# The types of result and arguments, and the functions that have them.
_SIGNATURES: tuple[tuple[Any, list[Any], str], ...] = (
    (ModelSettings, [], "llama_model_default_params"),
    (ContextSettings, [], "llama_context_default_params"),
    (c_void_p, [c_char_p, ModelSettings], "llama_model_load_from_file"),
    (c_void_p, [c_void_p, ContextSettings], "llama_init_from_model"),
    (None, [c_void_p], "llama_free llama_model_free gguf_free"),
    (c_void_p, [c_void_p], "llama_get_memory llama_model_get_vocab"),
    (c_int32, [c_void_p], "llama_model_n_ctx_train llama_model_n_embd_inp llama_vocab_n_tokens"),
    (c_int32, [c_void_p], "llama_vocab_bos llama_vocab_eos"),
    (c_int32, [c_void_p], "llama_vocab_fim_pre llama_vocab_fim_suf llama_vocab_fim_mid"),
    (c_bool, [c_void_p], "llama_model_is_recurrent llama_model_is_hybrid llama_vocab_get_add_bos"),
    (c_bool, [c_void_p], "llama_model_is_diffusion llama_model_has_encoder"),
    (c_int32, [c_void_p, Batch], "llama_decode"),
    (POINTER(c_float), [c_void_p, c_int32], "llama_get_logits_ith"),
    (c_bool, [c_void_p, c_int32, c_int32, c_int32], "llama_memory_seq_rm"),
    (None, [c_void_p, c_int32, c_int32, c_int32, c_int32], "llama_memory_seq_cp"),
    (c_int32, [c_void_p, c_int32], "llama_memory_seq_pos_max llama_vocab_get_attr"),
    (c_size_t, [c_void_p, c_int32], "llama_state_seq_get_size"),
    (c_size_t, [c_void_p, c_void_p, c_size_t, c_int32], "llama_state_seq_get_data llama_state_seq_set_data"),
    (None, [c_void_p, c_int32, c_int32], "llama_set_n_threads"),
    (None, [c_void_p, c_void_p, c_void_p], "llama_set_abort_callback"),
    (c_char_p, [c_void_p, c_int32], "llama_vocab_get_text"),
    (c_int32, [c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool], "llama_token_to_piece"),
    (c_int32, [c_void_p, c_char_p, c_char_p, c_size_t], "llama_model_meta_val_str"),
    (c_int32, [c_void_p, c_char_p, c_int32, c_void_p, c_int32, c_bool, c_bool], "llama_tokenize"),
    (c_bool, [], "llama_supports_gpu_offload"),
    (None, [_LogCallback, c_void_p], "llama_log_set"),
    (c_void_p, [c_char_p, GgufSettings], "gguf_init_from_file"),
    (c_int64, [c_void_p, c_char_p], "gguf_find_tensor gguf_find_key"),
    (c_int64, [c_void_p], "gguf_get_n_tensors"),
    (c_size_t, [c_void_p], "gguf_get_data_offset"),
    (c_size_t, _ENTRY, "gguf_get_tensor_offset gguf_get_tensor_size"),
    (c_int32, _ENTRY, "gguf_get_kv_type gguf_get_tensor_type"),
    (c_char_p, _ENTRY, "gguf_get_val_str"),
    (POINTER(c_int64), _ENTRY, "gguf_get_tensor_ne"),
    (c_char_p, [c_int32], "ggml_type_name"),
)
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
    for result_type, argument_types, names in _SIGNATURES:
        for name in names.split():
            function = getattr(library, name)
            function.restype, function.argtypes = result_type, argument_types
    library.llama_log_set(_log_callback, None)
    return library


def first_byte_test() -> Any:
    """Return a C function that says whether the text at an address is not empty.

    It is `strlen`, whose lowest byte is the truth value: texts here have one byte at most. A Python function would
    wait for the interpreter's lock at each of the 500 operations of a pass: while another thread computes, reading
    64 tokens took 1.6 times as long with one.
    """
    return ctypes.cast((ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).strlen, c_void_p)


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

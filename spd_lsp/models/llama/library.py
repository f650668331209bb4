"""llama.cpp's C interface. The compiled library comes with the package `xllamacpp` and is called directly.

Structures passed by value keep the library's defaults, but for fields whose place their default values confirm; a
library with another layout is refused.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections import deque
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_size_t, c_uint8, c_void_p
from functools import cache
from importlib.metadata import version
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.extras import install_command

_INSTALL = install_command()
ALL_LAYERS = -1  # on the GPU, where the library was built for one
MAX_SEQUENCES = 256  # of one context, as the library is compiled

_MODEL_SIZES = struct.Struct("2Q3i")  # two pointers, layers on the GPU, how they are split, how the file is read
_DEFAULT_MODEL_SIZES = (0, 0, ALL_LAYERS, 1, -1)
_READ = 0  # into memory: a mapped file that somebody cuts short ends this process
_CONTEXT_SIZES = struct.Struct("4I")  # positions, batch, micro-batch, sequences
_DEFAULT_CONTEXT_SIZES = (512, 2048, 512, 1)
_FLAGS = slice(136, 142)
_DEFAULT_FLAGS = bytes((0, 1, 1, 1, 1, 0))
_UNIFIED_CACHE = 141  # all sequences share one cache, with one copy of what they have in common
_ERROR = 4  # level of a log message


class Unavailable(UserError):
    """llama.cpp cannot be used here; the message is the reason."""


class Settings(ctypes.Structure):
    """A structure whose layout is internal to the library."""

    _fields_ = (("bytes", c_uint8 * 512),)


class Batch(ctypes.Structure):
    """`llama_batch`: tokens or embeddings, their positions and sequences, and whose logits are wanted."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


_LogCallback = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
_SEQUENCE = [c_void_p, c_int32]
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_model_default_params": (Settings, []),
    "llama_context_default_params": (Settings, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, Settings]),
    "llama_init_from_model": (c_void_p, [c_void_p, Settings]),
    "llama_free": (None, [c_void_p]),
    "llama_model_free": (None, [c_void_p]),
    "llama_model_n_ctx_train": (c_int32, [c_void_p]),
    "llama_model_n_embd_inp": (c_int32, [c_void_p]),
    "llama_model_is_recurrent": (c_bool, [c_void_p]),
    "llama_model_is_hybrid": (c_bool, [c_void_p]),
    "llama_model_is_diffusion": (c_bool, [c_void_p]),
    "llama_model_has_encoder": (c_bool, [c_void_p]),
    "llama_batch_init": (Batch, [c_int32, c_int32, c_int32]),
    "llama_batch_free": (None, [Batch]),
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
    "llama_set_abort_callback": (None, [c_void_p, c_void_p, c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_vocab_bos": (c_int32, [c_void_p]),
    "llama_vocab_eos": (c_int32, [c_void_p]),
    "llama_vocab_get_add_bos": (c_bool, [c_void_p]),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool]),
    "llama_supports_gpu_offload": (c_bool, []),
    "llama_log_set": (None, [_LogCallback, c_void_p]),
}
_errors: deque[str] = deque(maxlen=4)  # the library's last messages


def _note_log(level: int, text: bytes, data: Any) -> None:
    """Keep an error message."""
    if level == _ERROR:
        _errors.append(text.decode("utf-8", "replace").strip())


_log_callback = _LogCallback(_note_log)  # must outlive the library's pointer to it


@cache
def load_library() -> Any:
    """The library with its functions declared; raises `Unavailable` if it is missing or different."""
    try:
        import gguf  # noqa: F401
        import xllamacpp.xllamacpp as package
    except ImportError as error:
        raise Unavailable(
            f"models need llama.cpp here, and {error.name} is not installed; run: {_INSTALL}, or "
            "complete from n-grams alone with --model none"
        ) from error
    library = ctypes.CDLL(package.__file__)
    for name, (result_type, argument_types) in _SIGNATURES.items():
        if not hasattr(library, name):
            raise Unavailable(f"xllamacpp {version('xllamacpp')} has no {name}; install another version of it")
        function = getattr(library, name)
        function.restype = result_type
        function.argtypes = argument_types
    library.llama_log_set(_log_callback, None)
    return library


def first_byte_test() -> Any:
    """A C function that says whether the text at an address is not empty, which llama.cpp calls without Python.

    It takes what `strlen` returns for a truth value, whose lowest byte counts: texts here have one byte at most.
    """
    return ctypes.cast((ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).strlen, c_void_p)


def last_error() -> str:
    """The library's first message since this was last asked, which names the cause; then come consequences."""
    messages = [*_errors]
    _errors.clear()
    return messages[0].partition(": ")[2] or messages[0] if messages else "no reason given"


def model_settings(gpu_layers: int) -> Settings:
    """How to load a model, with this many layers on the GPU."""
    buffer = bytearray(bytes(load_library().llama_model_default_params().bytes))
    if _MODEL_SIZES.unpack_from(buffer) != _DEFAULT_MODEL_SIZES:
        raise _unknown_layout("model")
    _MODEL_SIZES.pack_into(buffer, 0, 0, 0, gpu_layers, 1, _READ)
    return Settings.from_buffer_copy(bytes(buffer))


def context_settings(positions: int, sequences: int) -> Settings:
    """How to make a context: all sequences share one cache of this many positions."""
    buffer = bytearray(bytes(load_library().llama_context_default_params().bytes))
    if _CONTEXT_SIZES.unpack_from(buffer) != _DEFAULT_CONTEXT_SIZES or bytes(buffer[_FLAGS]) != _DEFAULT_FLAGS:
        raise _unknown_layout("context")
    batch = max(positions, _DEFAULT_CONTEXT_SIZES[1])
    _CONTEXT_SIZES.pack_into(buffer, 0, positions, batch, _DEFAULT_CONTEXT_SIZES[2], sequences)
    buffer[_UNIFIED_CACHE] = 1
    return Settings.from_buffer_copy(bytes(buffer))


def _unknown_layout(what: str) -> Unavailable:
    return Unavailable(
        f"xllamacpp {version('xllamacpp')} has an unknown layout of {what} settings; install another version of it"
    )

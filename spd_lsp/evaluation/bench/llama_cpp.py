"""Decode with the same weights in llama.cpp: k rows of a batch after one prompt.

The package `xllamacpp` ships the compiled library. Its functions are called directly, so that no server, tokenizer
or sampler is timed. Structures passed by value keep the library's defaults except for fields whose offset is
verified; a library with another layout is rejected.

Dimensions: V vocabulary, k rows.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint8, c_void_p
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.evaluation.bench.gguf_file import Unsupported, write_gguf
from spd_lsp.extras import install_command

_SIZES = struct.Struct("4I")  # the first context settings: positions, batch, micro-batch, rows
DEFAULT_SIZES = (512, 2048, 512, 1)
FLAGS, UNIFIED_CACHE = (
    slice(136, 142),
    141,
)  # the last of these six flags: all rows share one cache, with one copy of the prompt
_DEFAULT_FLAGS = bytes((0, 1, 1, 1, 1, 0))


class OpaqueSettings(ctypes.Structure):
    """A structure whose layout is internal to the library."""

    _fields_ = (("bytes", c_uint8 * 512),)


class LlamaBatch(ctypes.Structure):
    """`llama_batch`: tokens, their positions, the rows they belong to, and whose logits are wanted."""

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
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_model_default_params": (OpaqueSettings, []),
    "llama_context_default_params": (OpaqueSettings, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, OpaqueSettings]),
    "llama_init_from_model": (c_void_p, [c_void_p, OpaqueSettings]),
    "llama_batch_init": (LlamaBatch, [c_int32, c_int32, c_int32]),
    "llama_batch_free": (None, [LlamaBatch]),
    "llama_free": (None, [c_void_p]),
    "llama_model_free": (None, [c_void_p]),
    "llama_decode": (c_int32, [c_void_p, LlamaBatch]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_memory_seq_cp": (None, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_set_n_threads": (None, [c_void_p, c_int32, c_int32]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_print_system_info": (c_char_p, []),
    "llama_log_set": (None, [_LogCallback, c_void_p]),
}
_ignore_log = _LogCallback(lambda level, text, data: None)  # must outlive the library's pointer to it


def _load_library() -> Any:
    """Load the compiled library and declare its functions; raise `Unsupported` if it is missing or different."""
    try:
        import gguf  # noqa: F401
        import xllamacpp.xllamacpp as package
    except ImportError as error:
        raise Unsupported(f"not installed; run {install_command('llama')}") from error
    library = ctypes.CDLL(package.__file__)
    for name, (result_type, argument_types) in _SIGNATURES.items():
        if not hasattr(library, name):
            raise Unsupported(f"{version('xllamacpp')} has no {name}")
        function = getattr(library, name)
        function.restype, function.argtypes = result_type, argument_types
    return library


class LlamaCpp:
    """A model in llama.cpp: the prompt is read once, then k rows continue it, one token of each per pass."""

    def __init__(self, folder: Path, rows: int, positions: int, threads: int) -> None:
        """Load a model. `positions` counts the prompt and all drafts together. Raises `Unsupported`."""
        self.library = _load_library()
        self.library.llama_log_set(_ignore_log, None)
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder_name:
            path = Path(folder_name) / "model.gguf"
            self.precision = write_gguf(folder, path)
            model = self.library.llama_model_load_from_file(
                str(path).encode(), self.library.llama_model_default_params()
            )
        if not model:
            raise Unsupported("cannot load this model")
        context = self.library.llama_init_from_model(model, self.settings(rows, positions))
        self.context, self.size = context, max(positions, rows)
        self.batch: Any = self.library.llama_batch_init(self.size, 0, 1)
        self.width = int(self.library.llama_vocab_n_tokens(self.library.llama_model_get_vocab(model)))
        self.memory = self.library.llama_get_memory(context)
        self.library.llama_set_n_threads(context, threads, threads)
        weakref.finalize(self, _release, self.library, self.batch, context, model)

    def settings(self, rows: int, positions: int) -> OpaqueSettings:
        """Return the context settings: all rows share one cache of so many positions, read in one batch."""
        defaults: OpaqueSettings = self.library.llama_context_default_params()
        buffer = bytearray(bytes(defaults.bytes))
        if _SIZES.unpack_from(buffer) != DEFAULT_SIZES or bytes(buffer[FLAGS]) != _DEFAULT_FLAGS:
            raise Unsupported(f"{version('xllamacpp')} has an unknown layout of context settings")
        _SIZES.pack_into(buffer, 0, positions, max(positions, DEFAULT_SIZES[1]), DEFAULT_SIZES[2], rows)
        buffer[UNIFIED_CACHE] = 1
        return OpaqueSettings.from_buffer_copy(bytes(buffer))

    def __str__(self) -> str:
        """Describe library and weights, for a report."""
        kind = "single" if self.precision == "float32" else "half"
        system_info = str(self.library.llama_print_system_info().decode())
        extensions = ", ".join(name for name in ("AVX512", "AVX2", "NEON") if f"{name} = 1" in system_info)
        build = f"xllamacpp {version('xllamacpp')}, built for {extensions or 'any processor'}"
        return f"{build}, weights in {kind} precision"

    def prefill(self, prompt: Sequence[int], rows: int) -> Floats:
        """Read a prompt into an empty cache for so many rows. Return the logits [V] of its last position."""
        self.library.llama_memory_clear(self.memory, False)
        last = len(prompt) - 1
        for position, token in enumerate(prompt):
            self.put(position, token, position, 0, logits=position == last)
        self.decode(len(prompt))
        for row in range(1, rows):
            self.library.llama_memory_seq_cp(self.memory, 0, row, -1, -1)
        return self.logits(last)

    def step(self, tokens: Ids, position: int) -> Floats:
        """Read one more token in each row, [k] -> logits [k, V]."""
        for row, token in enumerate(tokens.tolist()):
            self.put(row, token, position, row, logits=True)
        self.decode(len(tokens))
        return np.stack([self.logits(row) for row in range(len(tokens))])

    def put(self, slot: int, token: int, position: int, row: int, *, logits: bool) -> None:
        """Fill a slot of the batch."""
        self.batch.token[slot], self.batch.pos[slot] = token, position
        self.batch.n_seq_id[slot], self.batch.logits[slot] = 1, logits
        self.batch.seq_id[slot][0] = row

    def decode(self, size: int) -> None:
        """Read the first slots of the batch."""
        self.batch.n_tokens = size
        if status := self.library.llama_decode(self.context, self.batch):
            raise RuntimeError(f"llama_decode failed with status {status}")

    def logits(self, slot: int) -> Floats:
        """Return a view [V] of a slot's logits, which the next pass overwrites."""
        return np.ctypeslib.as_array(self.library.llama_get_logits_ith(self.context, slot), (self.width,))

    def drafts(self, prompt: Sequence[int], k: int, tokens: int, begun: Callable[[], Any]) -> Ids:
        """Continue the k likeliest first tokens greedily: [k, tokens]. `begun` is called after the first token."""
        steps = [top_tokens(self.prefill(prompt, k), k)]
        begun()
        for done in range(tokens - 1):
            steps.append(self.step(steps[-1], len(prompt) + done).argmax(axis=1))
        return np.stack(steps, axis=1)


def top_tokens(logits: Floats, k: int) -> Ids:
    """Return the k likeliest tokens, best first. [V] -> [k]."""
    top = np.argpartition(-logits, k)[:k]
    ordered: Ids = top[np.argsort(-logits[top])]
    return ordered


def _release(library: Any, batch: LlamaBatch, context: int, model: int) -> None:
    """Free the batch, the context and the model."""
    library.llama_batch_free(batch)
    library.llama_free(context)
    library.llama_model_free(model)

"""llama.cpp with the same weights, for comparison: k rows of a batch after one prompt, driven from here.

The package `xllamacpp` brings the compiled library. Its functions are called directly, so that no server,
tokenizer or sampler is timed along. Structures that go by value are taken as the library fills them in, and only
fields whose place is certain are changed; a library that lays them out otherwise is not used.

Legend: V vocabulary, k rows.
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
from spd_lsp.evaluation.bench.gguf_file import Unlike, write

_SIZES = struct.Struct("4I")  # how a context's settings begin: positions, batch, part of a batch, rows
AS_FILLED_IN = (512, 2048, 512, 1)
FLAGS, UNIFIED = slice(136, 142), 141  # the last of these six: all rows in one cache, where a prompt is kept once
_FLAGS_AS_FILLED_IN = bytes((0, 1, 1, 1, 1, 0))
_ERROR = 4  # the level of a message


class Settings(ctypes.Structure):
    """Room for a structure whose fields are the library's own business."""

    _fields_ = (("room", c_uint8 * 512),)


class Batch(ctypes.Structure):
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


Listener = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_model_default_params": (Settings, []),
    "llama_context_default_params": (Settings, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, Settings]),
    "llama_init_from_model": (c_void_p, [c_void_p, Settings]),
    "llama_batch_init": (Batch, [c_int32, c_int32, c_int32]),
    "llama_batch_free": (None, [Batch]),
    "llama_free": (None, [c_void_p]),
    "llama_model_free": (None, [c_void_p]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_memory_seq_cp": (None, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_set_n_threads": (None, [c_void_p, c_int32, c_int32]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_print_system_info": (c_char_p, []),
    "llama_log_set": (None, [Listener, c_void_p]),
}
silence = Listener(lambda level, text, data: None)  # held here: the library keeps a pointer to it


def library() -> Any:
    """The compiled library, its functions declared; raises `Unlike` where it is missing or laid out otherwise."""
    try:
        import gguf  # noqa: F401
        import xllamacpp.xllamacpp as package
    except ImportError as error:
        raise Unlike("not installed; pip install 'spd-lsp[bench-llama]' to have it") from error
    found = ctypes.CDLL(package.__file__)
    for name, (answer, given) in _SIGNATURES.items():
        if not hasattr(found, name):
            raise Unlike(f"{version('xllamacpp')} has no {name}")
        function = getattr(found, name)
        function.restype, function.argtypes = answer, given
    return found


class LlamaCpp:
    """A model in llama.cpp: a prompt is read once, then k rows go on from it, one pass for a token of each."""

    def __init__(self, folder: Path, rows: int, positions: int, threads: int) -> None:
        """`positions`: of the prompt and all drafts together. Raises `Unlike` for what it does not load."""
        self.library = library()
        self.library.llama_log_set(silence, None)
        with TemporaryDirectory(ignore_cleanup_errors=True) as made:
            path = Path(made) / "model.gguf"
            self.precision = write(folder, path)
            model = self.library.llama_model_load_from_file(
                str(path).encode(), self.library.llama_model_default_params()
            )
        if not model:
            raise Unlike("does not load this model")
        context = self.library.llama_init_from_model(model, self.settings(rows, positions))
        self.context, self.size = context, max(positions, rows)
        self.batch: Any = self.library.llama_batch_init(self.size, 0, 1)
        self.width = int(self.library.llama_vocab_n_tokens(self.library.llama_model_get_vocab(model)))
        self.memory = self.library.llama_get_memory(context)
        self.library.llama_set_n_threads(context, threads, threads)
        weakref.finalize(self, release, self.library, self.batch, context, model)

    def settings(self, rows: int, positions: int) -> Settings:
        """A context's settings: so many positions in one cache that all rows share, read in one batch."""
        found: Settings = self.library.llama_context_default_params()
        room = bytearray(bytes(found.room))
        if _SIZES.unpack_from(room) != AS_FILLED_IN or bytes(room[FLAGS]) != _FLAGS_AS_FILLED_IN:
            raise Unlike(f"{version('xllamacpp')} lays out its settings in another way than is known here")
        _SIZES.pack_into(room, 0, positions, max(positions, AS_FILLED_IN[1]), AS_FILLED_IN[2], rows)
        room[UNIFIED] = 1
        return Settings.from_buffer_copy(bytes(room))

    def __str__(self) -> str:
        """What it is, for a report."""
        kind = "single" if self.precision == "float32" else "half"
        built = str(self.library.llama_print_system_info().decode())
        has = ", ".join(name for name in ("AVX512", "AVX2", "NEON") if f"{name} = 1" in built)
        return f"xllamacpp {version('xllamacpp')}, built for {has or 'any processor'}, weights in {kind} precision"

    def prefill(self, prompt: Sequence[int], rows: int) -> Floats:
        """Read a prompt with an empty cache, for so many rows; the logits [V] of its last position."""
        self.library.llama_memory_clear(self.memory, False)
        last = len(prompt) - 1
        for place, token in enumerate(prompt):
            self.put(place, token, place, 0, wanted=place == last)
        self.decode(len(prompt))
        for row in range(1, rows):
            self.library.llama_memory_seq_cp(self.memory, 0, row, -1, -1)
        return self.logits(last)

    def step(self, tokens: Ids, position: int) -> Floats:
        """Read one more token in each row, [k] -> logits [k, V]."""
        for row, token in enumerate(tokens.tolist()):
            self.put(row, token, position, row, wanted=True)
        self.decode(len(tokens))
        return np.stack([self.logits(row) for row in range(len(tokens))])

    def put(self, place: int, token: int, position: int, row: int, *, wanted: bool) -> None:
        """Fill a place of the batch."""
        self.batch.token[place], self.batch.pos[place] = token, position
        self.batch.n_seq_id[place], self.batch.logits[place] = 1, wanted
        self.batch.seq_id[place][0] = row

    def decode(self, size: int) -> None:
        """Read the first places of the batch."""
        self.batch.n_tokens = size
        if status := self.library.llama_decode(self.context, self.batch):
            raise RuntimeError(f"llama_decode ended with {status}")

    def logits(self, place: int) -> Floats:
        """A view [V] that the next pass writes over."""
        return np.ctypeslib.as_array(self.library.llama_get_logits_ith(self.context, place), (self.width,))

    def drafts(self, prompt: Sequence[int], k: int, tokens: int, begun: Callable[[], Any]) -> Ids:
        """The k likeliest first tokens, each continued greedily: [k, tokens]; `begun` hears of the first."""
        found = [likeliest(self.prefill(prompt, k), k)]
        begun()
        for done in range(tokens - 1):
            found.append(self.step(found[-1], len(prompt) + done).argmax(axis=1))
        return np.stack(found, axis=1)


def likeliest(logits: Floats, k: int) -> Ids:
    """The k likeliest tokens, best first. [V] -> [k]."""
    found = np.argpartition(-logits, k)[:k]
    ordered: Ids = found[np.argsort(-logits[found])]
    return ordered


def release(found: Any, batch: Batch, context: int, model: int) -> None:
    """Give everything back."""
    found.llama_batch_free(batch)
    found.llama_free(context)
    found.llama_model_free(model)

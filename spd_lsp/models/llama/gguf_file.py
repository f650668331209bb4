"""A GGUF file in llama.cpp: the loaded model, its vocabulary and token embeddings, and its header.

llama.cpp cuts text into tokens, and gives the bytes of each. A mixture needs rows of the embeddings, which are
read from the file and converted.

Legend: M ids, D width.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import c_int64, c_void_p
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.first_use import first_use
from spd_lsp.models.base import usable_cores
from spd_lsp.models.llama.library import GgufSettings, last_error, load_library, model_settings
from spd_lsp.models.stored import find_parts
from spd_lsp.models.vocabulary import Vocabulary, byte_level_piece, fingerprint_of, is_byte_level

_MAX_VALUE = 1 << 12  # bytes of a metadata value
# Bytes of weights that each process reads into memory of its own. More are mapped: they open a second sooner, and
# a second process takes next to nothing; but cutting the file short while it is used ends the processes.
_READ_BYTES = 1 << 28
_STRING = 8  # a type of metadata values
# Kinds of a token; it may have several.
_UNKNOWN, _UNUSED, _NORMAL, _CONTROL, _USER_DEFINED = (1 << bit for bit in range(5))
_MAX_PIECE = 1 << 12  # bytes
_FILL_MARKS = (" <PRE>", " <SUF>", " <MID>")  # of Code Llama, as the converter writes them if they are text
# llama.cpp's functions that convert a row, where they are not called `dequantize_row_` and the data type.
_CONVERTERS = {"f16": "ggml_fp16_to_fp32_row", "bf16": "ggml_bf16_to_fp32_row"}


class LlamaModel:
    """The weights of a GGUF file and its vocabulary; or its vocabulary alone."""

    def __init__(self, path: Path, gpu_layers: int = 0, *, vocab_only: bool = False) -> None:
        self.path = path
        self.library = library = load_library()
        self.file_size = sum(part.stat().st_size for part in find_parts(path))
        settings = model_settings(gpu_layers, vocab_only=vocab_only, mapped=self.file_size > _READ_BYTES)
        last_error()  # forget those of other files
        self.pointer = library.llama_model_load_from_file(str(path).encode(), settings)
        if not self.pointer:
            raise UserError(
                f"llama.cpp cannot open {path}: {last_error()}; fetch the file again, or choose another one"
            )
        weakref.finalize(self, library.llama_model_free, self.pointer)
        self.vocabulary = library.llama_model_get_vocab(self.pointer)
        self.size = int(library.llama_vocab_n_tokens(self.vocabulary))
        self.width = int(library.llama_model_n_embd_inp(self.pointer))
        self.max_positions = int(library.llama_model_n_ctx_train(self.pointer))
        has_state = library.llama_model_is_recurrent(self.pointer) or library.llama_model_is_hybrid(self.pointer)
        self.keeps_positions = not has_state  # whether positions can be dropped one by one
        is_other = library.llama_model_is_diffusion(self.pointer) or library.llama_model_has_encoder(self.pointer)
        self.predicts_next_token = not is_other

    def metadata(self, key: str) -> str:
        """Return a value of the file's metadata; an empty string if there is none. Example: `general.name`."""
        buffer = ctypes.create_string_buffer(_MAX_VALUE)
        self.library.llama_model_meta_val_str(self.pointer, key.encode(), buffer, _MAX_VALUE)
        return buffer.value.decode("utf-8", "replace")


# Models with weights, by the text that `opening` yields: their vocabulary need not be read again.
loaded: weakref.WeakValueDictionary[str, LlamaModel] = weakref.WeakValueDictionary()


@contextmanager
def opening(path: Path) -> Iterator[str]:
    """Open a file within: llama.cpp may end the process, and then the next one does not open the file.

    Yields a text that identifies the file's content.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    folder = platformdirs.user_cache_path("spd-lsp", appauthor=False) / "first-use"
    state = f"{path} {status.st_size} {status.st_mtime_ns} {version('xllamacpp')}"
    with first_use(folder, f"the model {path.name}", state):
        yield state


class LlamaVocabulary(Vocabulary):
    """The vocabulary of a GGUF file, of the loaded model if there is one, or read without the weights."""

    def __init__(self, path: Path) -> None:
        with opening(path) as state:  # reading a large vocabulary takes most of a second
            self.model = loaded.get(state) or LlamaModel(path, vocab_only=True)
        self.library = library = self.model.library
        self.pointer = pointer = self.model.vocabulary
        kinds = np.array([library.llama_vocab_get_attr(pointer, i) for i in range(self.model.size)])
        self.ids = np.flatnonzero(kinds & _UNUSED == 0).tolist()
        if not self.ids:
            raise UserError(f"{path} has no vocabulary; choose a file that llama.cpp's converter wrote")
        self.marks = self._marks(kinds)
        names = [(self._name(i), i) for i in self.ids]
        self.pieces = self._pieces(names, (kinds & _NORMAL != 0).tolist())
        self.fingerprint = fingerprint_of(names, self.encode)
        self.opening = [int(library.llama_vocab_bos(pointer))] if library.llama_vocab_get_add_bos(pointer) else []
        self.config = {
            "model_type": self.model.metadata("general.architecture"),
            "name": self.model.metadata("general.name") or path.stem,
            "vocab_size": self.model.size,
            "eos_token_id": int(library.llama_vocab_eos(pointer)),
        }

    def encode(self, text: str) -> list[int]:
        """As in `Vocabulary`."""
        data = text.encode("utf-8", "replace")  # llama.cpp ends the process for half of a surrogate pair
        ids = np.empty(len(data) + 8, np.int32)  # tokens have a byte at least, but for a blank that is put first
        count = self.library.llama_tokenize(self.pointer, data, len(data), ids.ctypes.data, len(ids), False, False)
        found: list[int] = ids[:count].tolist()
        return found

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """As in `Vocabulary`. llama.cpp runs without the interpreter's lock."""
        with ThreadPoolExecutor(usable_cores()) as pool:
            yield from pool.map(self.encode, texts)

    def _name(self, i: int) -> str:
        name: str = self.library.llama_vocab_get_text(self.pointer, i).decode("utf-8", "replace")
        return name

    def _marks(self, kinds: npt.NDArray[np.int64]) -> dict[str, int]:
        """Return the tokens that mark something, by name.

        llama.cpp takes some tokens of text for control tokens, too, such as `</s>` in Qwen's vocabulary.
        """
        library = self.library
        is_special = (kinds & (_UNKNOWN | _CONTROL) != 0) & (kinds & (_NORMAL | _UNUSED) == 0)
        marks = set(np.flatnonzero(is_special).tolist())
        filling = (library.llama_vocab_fim_pre, library.llama_vocab_fim_suf, library.llama_vocab_fim_mid)
        marks |= {i for find in filling if (i := find(self.pointer)) >= 0}
        marks |= {i for i in np.flatnonzero(kinds & _USER_DEFINED).tolist() if self._name(i) in _FILL_MARKS}
        names = {i: self._name(i) for i in sorted(marks)}
        return {name.replace(" ", "▁") if name in _FILL_MARKS else name: i for i, name in names.items()}

    def _pieces(self, names: Sequence[tuple[str, int]], normal: Sequence[bool]) -> list[bytes]:
        """Return the bytes of each id up to the last one in use: some models have more embeddings than tokens."""
        buffer = ctypes.create_string_buffer(_MAX_PIECE)
        pieces = [b""] * (self.ids[-1] + 1)
        marks = set(self.marks.values())
        if is_byte_level([name for name, _ in names]):  # asking llama.cpp takes three times as long
            for name, i in names:
                pieces[i] = b"" if i in marks else byte_level_piece(name) if normal[i] else name.encode()
            return pieces
        for i in set(self.ids) - marks:
            size = self.library.llama_token_to_piece(self.pointer, i, buffer, _MAX_PIECE, 0, True)
            pieces[i] = ctypes.string_at(buffer, max(0, size))
        return pieces


class TokenEmbeddings:
    """The embedding of each token id, in single precision."""

    def __init__(self, path: Path, count: int, width: int) -> None:
        """`count` ids, each with `width` numbers."""
        self.width = width
        for part in find_parts(path):
            with _header(part) as (library, header):
                number = library.gguf_find_tensor(header, b"token_embd.weight")
                if number >= 0 and library.gguf_get_tensor_ne(header, number)[0] == width:
                    self.offset = library.gguf_get_data_offset(header)
                    self.offset += library.gguf_get_tensor_offset(header, number)
                    self.row_bytes = library.gguf_get_tensor_size(header, number) // count
                    self.kind = library.ggml_type_name(library.gguf_get_tensor_type(header, number)).decode()
                    self.file = part.open("rb", buffering=0)
                    break
        else:
            raise UserError(f"{path} has no token embeddings; choose a language model")
        self.file_size = os.fstat(self.file.fileno()).st_size
        self.lock = threading.Lock()  # the file has one position
        weakref.finalize(self, self.file.close)

    def rows(self, ids: Sequence[int]) -> Floats:
        """Return the embeddings of some ids. [M, D]."""
        with self.lock:
            return np.stack([self._row(token) for token in ids])

    def _row(self, token: int) -> Floats:
        self.file.seek(self.offset + token * self.row_bytes)
        data = self.file.read(self.row_bytes)
        if len(data) != self.row_bytes or os.fstat(self.file.fileno()).st_size != self.file_size:
            raise UserError(
                f"{self.file.name} was changed while it was open; fetch it again and restart the server"
            )
        if self.kind == "f32":
            return np.frombuffer(data, np.float32)
        convert = getattr(load_library(), _CONVERTERS.get(self.kind, f"dequantize_row_{self.kind}"))
        convert.restype, convert.argtypes = None, [c_void_p, c_void_p, c_int64]
        row = np.empty(self.width, np.float32)
        convert(data, row.ctypes.data, self.width)
        return row


def describe(path: Path) -> str:
    """Return the architecture and the data type that takes most of the weights. Example: `qwen2 Q4_K`."""
    sizes: Counter[str] = Counter()
    architecture = ""
    for part in find_parts(path):
        with _header(part) as (library, header):
            key = library.gguf_find_key(header, b"general.architecture")
            if key >= 0 and library.gguf_get_kv_type(header, key) == _STRING:
                architecture = library.gguf_get_val_str(header, key).decode("utf-8", "replace")
            for number in range(library.gguf_get_n_tensors(header)):
                kind = library.ggml_type_name(library.gguf_get_tensor_type(header, number)).decode()
                sizes[kind.upper()] += library.gguf_get_tensor_size(header, number)
    return " ".join([architecture, *(kind for kind, _ in sizes.most_common(1))])


@contextmanager
def _header(path: Path) -> Iterator[tuple[Any, int]]:
    """Yield the library and its header of one file, which is freed afterwards."""
    library = load_library()
    last_error()  # forget those of other files
    header = library.gguf_init_from_file(str(path).encode(), GgufSettings(no_alloc=True, ctx=None))
    if not header:
        raise UserError(f"{path} is not a usable GGUF file: {last_error()}; fetch it again")
    try:
        yield library, header
    finally:
        library.gguf_free(header)

"""What lies in a GGUF file: what a list of models shows of its header, and the token embeddings.

llama.cpp reads the header. A mixture needs rows of the embeddings, which are read from the file and converted.

Legend: M ids, D width.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.llama.library import GgufSettings, last_error, load_library
from spd_lsp.models.stored import find_parts

_STRING = 8  # a type of metadata values
_MAX_KEPT = 4096  # rows; a few megabytes
# llama.cpp's functions that convert a row, where they are not called `dequantize_row_` and the data type.
_CONVERTERS = {"f16": "ggml_fp16_to_fp32_row", "bf16": "ggml_bf16_to_fp32_row"}


def describe(path: Path) -> str:
    """The architecture, and the data type that takes most of the weights. Example: `qwen2 Q4_K`."""
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


class TokenEmbeddings:
    """The embedding of each token id, in single precision."""

    def __init__(self, path: Path, count: int, width: int) -> None:
        """`count` ids, of which each has `width` numbers."""
        self.count, self.width = count, width
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
        self.row = lru_cache(_MAX_KEPT)(self._read)
        weakref.finalize(self, self.file.close)

    def rows(self, ids: Sequence[int]) -> Floats:
        """The embeddings of some ids. [M, D]."""
        with self.lock:
            return np.stack([self.row(token) for token in ids])

    def _read(self, token: int) -> Floats:
        if not 0 <= token < self.count:
            raise IndexError(f"expected ids from 0 to {self.count - 1}, found {token}")
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


@contextmanager
def _header(path: Path) -> Iterator[tuple[Any, int]]:
    """The library and its header of one file, freed afterwards."""
    library = load_library()
    last_error()  # of whatever was read before
    header = library.gguf_init_from_file(str(path).encode(), GgufSettings(no_alloc=True, ctx=None))
    if not header:
        raise UserError(f"{path} is not a usable GGUF file: {last_error()}; fetch it again")
    try:
        yield library, header
    finally:
        library.gguf_free(header)

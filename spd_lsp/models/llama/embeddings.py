"""Rows of the token embeddings, read from their file when a mixture needs them and converted to single precision.

Legend: M ids, D width.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.llama.header import GgufHeader, TensorInfo

_NAME = "token_embd.weight"
_MAX_KEPT = 4096  # rows; a few megabytes


class TokenEmbeddings:
    """The embedding of each token id."""

    def __init__(self, header: GgufHeader) -> None:
        tensor = header.tensors[_NAME]
        self.width, self.count = tensor.shape
        self.kind = GGMLQuantizationType(tensor.kind)
        self.row_bytes = _tensor_bytes(tensor) // self.count
        self.offset = tensor.offset
        self.file_size = header.sizes[tensor.path]
        self.file = tensor.path.open("rb", buffering=0)
        weakref.finalize(self, self.file.close)
        self.lock = threading.Lock()  # the file has one position
        self.kept: OrderedDict[int, Floats] = OrderedDict()  # least recently used first

    def rows(self, ids: Sequence[int]) -> Floats:
        """The embeddings of some ids. [M, D]."""
        with self.lock:
            return np.stack([self._row(token) for token in ids])

    def _row(self, token: int) -> Floats:
        if not 0 <= token < self.count:
            raise IndexError(f"expected ids from 0 to {self.count - 1}, found {token}")
        row = self.kept.pop(token, None)
        if row is None:
            row = self._read(token)
            if len(self.kept) == _MAX_KEPT:
                self.kept.popitem(last=False)
        self.kept[token] = row
        return row

    def _read(self, token: int) -> Floats:
        self.file.seek(self.offset + token * self.row_bytes)
        data = self.file.read(self.row_bytes)
        if len(data) != self.row_bytes or os.fstat(self.file.fileno()).st_size != self.file_size:
            raise UserError(
                f"{self.file.name} was changed while it was open; fetch it again and restart the server"
            )
        row: Floats = dequantize(np.frombuffer(data, np.uint8), self.kind)
        return row


def _tensor_bytes(tensor: TensorInfo) -> int:
    """How many bytes a weight of a file takes; `UserError` for a data type that is not known here."""
    try:
        sizes: tuple[int, int] = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
    except ValueError as error:
        raise UserError(
            f"{tensor.path} has weights of type {tensor.kind}, which is not known here; update gguf"
        ) from error
    return int(np.prod(tensor.shape, dtype=object)) // sizes[0] * sizes[1]


def check_tensors(header: GgufHeader) -> None:
    """`UserError` for files that are shorter than their weights, or that have no embeddings or odd ones."""
    for name, tensor in header.tensors.items():
        end = tensor.offset + _tensor_bytes(tensor)
        size = header.sizes[tensor.path]
        if end > size:
            raise UserError(
                f"{tensor.path} is cut off: it has {size:,} bytes, and the weight {name[:80]!r} ends at "
                f"{end:,}; fetch it again"
            )
    embedding = header.tensors.get(_NAME)
    block = GGML_QUANT_SIZES[GGMLQuantizationType(embedding.kind)][0] if embedding else 1
    if embedding is None or len(embedding.shape) != 2 or embedding.shape[0] % block or not embedding.shape[1]:
        raise UserError(f"{header.path} has no token embeddings; choose a language model")

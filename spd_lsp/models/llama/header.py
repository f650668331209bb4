"""The header of a GGUF model, in one file or several: metadata and the places of the weights, read within bounds.

A file may be truncated or crafted: no number in it costs more memory or time than its own bytes do. `gguf`'s own
reader believes every count, and takes seconds for a large vocabulary.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.gguf_parts import find_parts

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_HEADER_BYTES = 128 << 20  # one of 260,000 tokens has 15 MB
_MAX_TENSORS = 1 << 16
_BLOCK = 1 << 20
# GGML's numbers of common data types.
_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 30: "BF16", 39: "MXFP4",
}  # fmt: skip
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_last: dict[str, Any] = {}  # the header that was read last, without lists, and the stamps of its files
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_ARCHITECTURE, _ALIGNMENT = "general.architecture", "general.alignment"
_PART_NUMBER, _PART_COUNT = "split.no", "split.count"


class _Damaged(ValueError):
    """The bytes are not those of a GGUF file."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a weight lies, and how it is stored."""

    shape: tuple[int, ...]  # innermost dimension first
    kind: int  # GGML's number of the data type
    offset: int  # from the start of the file
    path: Path  # of the file


@dataclass(frozen=True)
class GgufHeader:
    """What a model's files say of themselves."""

    path: Path  # of the first one
    sizes: dict[Path, int]  # of the files, in bytes
    metadata: dict[str, Any]  # of the first one; arrays of numbers are NumPy arrays
    tensors: dict[str, TensorInfo]
    digest: str  # of the headers, the files' sizes and samples of the weights

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return sum(self.sizes.values())

    @property
    def architecture(self) -> str:
        """The model family, by llama.cpp's name."""
        return str(self.metadata[_ARCHITECTURE])

    @property
    def quantization(self) -> str:
        """The data type of most weights. Example: `Q4_K`."""
        sizes: Counter[int] = Counter()
        for tensor in self.tensors.values():
            sizes[tensor.kind] += int(np.prod(tensor.shape, dtype=object))
        return _NAMES.get(sizes.most_common(1)[0][0], "") if sizes else ""

    def number(self, name: str, default: int = 0) -> int:
        """A whole number that describes the architecture. Example: `context_length`."""
        value = self.metadata.get(f"{self.architecture}.{name}", default)
        return value if isinstance(value, int) else default


def read_header(path: Path) -> GgufHeader:
    """The header of the model that a file is, or is a part of; `UserError` if a part is missing or unusable."""
    files = find_parts(path)
    stamps = [_stamp(file) for file in files]
    header = _read_parts([_read_file(file) for file in files])
    lists = [name for name, value in header.metadata.items() if isinstance(value, (list, np.ndarray))]
    short = replace(header, metadata={k: v for k, v in header.metadata.items() if k not in lists})
    _last.update(stamps=stamps, header=short)
    return header


def read_short_header(path: Path) -> GgufHeader:
    """As `read_header`, but without lists such as the vocabulary; read again only if the files changed since."""
    stamps = [_stamp(file) for file in find_parts(path)]
    if _last.get("stamps") != stamps:
        read_header(path)
    header: GgufHeader = _last["header"]
    return header


def _stamp(path: Path) -> tuple[Path, int, int, int]:
    """What changes when a file does; `UserError` if there is none."""
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    return path, status.st_ino, status.st_size, status.st_mtime_ns


def _read_parts(parts: list[GgufHeader]) -> GgufHeader:
    """The header of a model from those of its files."""
    first = parts[0]
    if not isinstance(first.metadata.get(_ARCHITECTURE), str):
        raise _unusable(first.path, "it does not name its architecture")
    for number, part in enumerate(parts):
        own = part.metadata.get(_PART_NUMBER, 0), part.metadata.get(_PART_COUNT) or 1
        if own != (number, len(parts)):
            named = f"part {number + 1} of {len(parts)}" if len(parts) > 1 else "whole"
            raise _unusable(part.path, f"by its name it is {named}, by its header it is not; it was renamed")
    if len(parts) == 1:
        return first
    sizes = {one.path: one.size for one in parts}
    tensors = {name: info for one in parts for name, info in one.tensors.items()}
    digest = hashlib.blake2b("".join(one.digest for one in parts).encode(), digest_size=8).hexdigest()
    return replace(first, sizes=sizes, tensors=tensors, digest=digest)


def _read_file(path: Path) -> GgufHeader:
    """The header of one file; `UserError` if it is truncated, too large or none."""
    try:
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (_Damaged, struct.error, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, _Damaged) else "its header is damaged or cut off"
        raise _unusable(path, reason) from error


def _unusable(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is not a usable GGUF file: {reason}; fetch it again")


def _read(path: Path, file: BinaryIO) -> GgufHeader:
    size = path.stat().st_size
    cursor = _Cursor(file, size)
    if not size:
        raise _Damaged("it is empty")
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise _Damaged("it does not begin as one")
    version = cursor.one("I")
    tensors = cursor.one("Q")
    pairs = cursor.one("Q")
    if version not in _VERSIONS:
        raise _Damaged(f"it has version {version}, and versions 2 and 3 are read")
    if max(tensors, pairs) > _MAX_TENSORS:
        raise _Damaged(f"it names {max(tensors, pairs):,} entries, more than {_MAX_TENSORS:,}")
    metadata = {cursor.text(): cursor.value(cursor.one("I")) for _ in range(pairs)}
    infos = {cursor.text(): _tensor_info(cursor, path) for _ in range(tensors)}
    alignment = metadata.get(_ALIGNMENT, 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise _Damaged(f"its alignment is {alignment!r}")
    start = -(-cursor.place // alignment) * alignment
    placed = {name: replace(info, offset=start + info.offset) for name, info in infos.items()}
    for name, info in placed.items():
        if info.offset > size:
            raise _Damaged(f"it ends before the weight {name[:80]!r}: it was cut off")
    return GgufHeader(path, {path: size}, metadata, placed, _digest(file, cursor.data[: cursor.place], size))


def _digest(file: BinaryIO, header: bytes, size: int) -> str:
    """What tells a file from others: its header, its size, and samples of its weights."""
    digest = hashlib.blake2b(header, digest_size=8)
    digest.update(size.to_bytes(8, "little"))
    for number in range(_SAMPLES):
        file.seek(size * number // _SAMPLES)
        digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _tensor_info(cursor: _Cursor, path: Path) -> TensorInfo:
    dimensions = cursor.one("I")
    if dimensions > _MAX_DIMENSIONS:
        raise _Damaged(f"a weight has {dimensions} dimensions")
    shape = tuple(cursor.numbers("Q", dimensions))
    return TensorInfo(shape, cursor.one("I"), cursor.one("Q"), path)


class _Cursor:
    """Reads one value after the other. A mapped file that somebody cuts short would end this process."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self.data = b""  # what was read, from the start
        self.place = 0
        self.end = min(size, _MAX_HEADER_BYTES)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        start = self.place
        self.place = start + size
        self._read_up_to(self.place)
        return self.data[start : self.place]

    def _read_up_to(self, place: int) -> None:
        """Have the bytes before a place, and some more: each time as many again."""
        while place > len(self.data):
            more = self.file.read(max(_BLOCK, len(self.data))) if place <= self.end else b""
            if not more:
                raise _Damaged("its header is damaged or cut off")
            self.data += more

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        """So many numbers of one kind."""
        reader = struct.Struct(f"<{count}{code}")
        return reader.unpack(self.take(reader.size))

    def one(self, code: str) -> Any:
        """The next number."""
        return self.numbers(code, 1)[0]

    def text(self) -> str:
        """The next text."""
        return self.take(self.one("Q")).decode("utf-8")

    def value(self, kind: int) -> Any:
        """The next value of a kind; arrays hold no arrays."""
        if kind == _STRING:
            return self.take(self.one("Q")).decode("utf-8", "surrogateescape")
        if kind in _SCALARS:
            return self.one(_SCALARS[kind])
        if kind != _ARRAY:
            raise _Damaged(f"it has a value of the unknown kind {kind}")
        kind = self.numbers("I", 1)[0]
        count = self.one("Q")
        if kind == _STRING:
            return self._texts(count)
        if kind not in _SCALARS:
            raise _Damaged(f"it has a list of the unknown kind {kind}")
        dtype = np.dtype("<" + _SCALARS[kind])
        if count > (self.end - self.place) // dtype.itemsize:
            raise _Damaged("its header is damaged or cut off")
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def _texts(self, count: int) -> list[str]:
        """A list of texts, each of which takes eight bytes at least."""
        if count > (self.end - self.place) // 8:
            raise _Damaged("its header is damaged or cut off")
        place = self.place
        length = struct.Struct("<Q").unpack_from
        texts = []
        for _ in range(count):
            start = place + 8
            if start > len(self.data):
                self._read_up_to(start)
            place = start + length(self.data, place)[0]
            if place > len(self.data):
                self._read_up_to(place)
            texts.append(self.data[start:place].decode("utf-8", "surrogateescape"))
        self.place = place
        return texts

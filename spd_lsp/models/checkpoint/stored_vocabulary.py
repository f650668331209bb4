"""What is found out about the vocabulary of a GGUF file, kept beside the check of the file: half a second's work.

It lies in the cache, next to the `tokenizer.json` that it was found out from, and is made again when it does
not fit that. Numbers and bytes only: a damaged file costs the time to make it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import tokenizers

from spd_lsp.models.llama.prepared import read_source

_NAME = "vocabulary.msgpack"
_FORMAT = 2  # to be raised when something is found out in another way


@dataclass(frozen=True, slots=True, eq=False)
class StoredVocabulary:
    """A vocabulary: its name, the bytes of each id, and ids that have bytes in the order of these."""

    fingerprint: str
    pieces: list[bytes]
    order: npt.NDArray[np.int64]


def read_vocabulary(folder: Path) -> StoredVocabulary | None:
    """What was kept in a folder, if it fits and the folder stands for a GGUF file."""
    if read_source(folder) is None:
        return None
    with suppress(OSError, ValueError, TypeError, KeyError, msgpack.UnpackException):
        stored = msgpack.unpackb((folder / _NAME).read_bytes())
        if stored["key"] == _key(folder):
            return _unpack(stored)
    return None


def write_vocabulary(folder: Path, find: Callable[[], StoredVocabulary]) -> None:
    """Keep what `find` finds out, if the folder stands for a GGUF file."""
    if read_source(folder) is None:
        return
    new = folder / f"{_NAME}.{os.getpid()}"
    with suppress(OSError):  # as on a full disk: it only saves time
        new.write_bytes(msgpack.packb({"key": _key(folder), **_pack(find())}))
        new.replace(folder / _NAME)


def _key(folder: Path) -> list[object]:
    """What it was found out from, and by what."""
    content = blake2b((folder / "tokenizer.json").read_bytes(), digest_size=16).hexdigest()
    return [_FORMAT, tokenizers.__version__, content]


def _pack(vocabulary: StoredVocabulary) -> dict[str, object]:
    lengths = np.array([len(piece) for piece in vocabulary.pieces], "<u4")
    return {
        "fingerprint": vocabulary.fingerprint,
        "lengths": lengths.tobytes(),
        "pieces": b"".join(vocabulary.pieces),
        "order": vocabulary.order.astype("<u4").tobytes(),
    }


def _unpack(stored: dict[str, bytes]) -> StoredVocabulary:
    """`ValueError` or `TypeError` for what `_pack` does not make."""
    lengths, order = np.frombuffer(stored["lengths"], "<u4"), np.frombuffer(stored["order"], "<u4")
    fingerprint, joined = stored["fingerprint"], stored["pieces"]
    if not isinstance(fingerprint, str) or int(lengths.sum()) != len(joined):
        raise ValueError("lengths and pieces differ")
    pieces = _cut(joined, lengths.tolist())
    if len(order) and order.max() >= len(pieces):
        raise ValueError("the order is not that of the pieces")
    if {pieces[i] for i in order} != set(pieces) - {b""}:  # of several ids with the same bytes one is enough
        raise ValueError("the order lacks pieces")
    return StoredVocabulary(fingerprint, pieces, order.astype(np.int64))


def _cut(joined: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Bytes of these lengths. Example: b"abc", [1, 2] -> [b"a", b"bc"]."""
    return [joined[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]

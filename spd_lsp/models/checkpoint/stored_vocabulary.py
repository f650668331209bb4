"""What is found out about the vocabulary of a GGUF file, kept beside the check of the file: half a second's work.

It lies in the cache, next to the `tokenizer.json` that it was found out from, and begins with a digest of both:
what does not fit that is made again. Numbers and bytes only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import tokenizers

from spd_lsp.models.llama.prepared import read_source

_NAME = "vocabulary.msgpack"
_FORMAT = 3  # to be raised when something is found out in another way
_DIGEST_BYTES = 16


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
    with suppress(OSError):
        content = (folder / _NAME).read_bytes()
        packed = content[_DIGEST_BYTES:]
        if content[:_DIGEST_BYTES] == _digest(folder, packed):
            fingerprint, pieces, order = msgpack.unpackb(packed)
            return StoredVocabulary(fingerprint, pieces, np.array(order, np.int64))
    return None


def write_vocabulary(folder: Path, find: Callable[[], StoredVocabulary]) -> None:
    """Keep what `find` finds out, if the folder stands for a GGUF file."""
    if read_source(folder) is None:
        return
    found = find()
    packed = msgpack.packb([found.fingerprint, found.pieces, found.order.tolist()])
    new = folder / f"{_NAME}.{os.getpid()}"
    with suppress(OSError):  # as on a full disk: it only saves time
        new.write_bytes(_digest(folder, packed) + packed)
        new.replace(folder / _NAME)


def _digest(folder: Path, packed: bytes) -> bytes:
    """Of what is kept, what it was found out from, and by what."""
    digest = blake2b(f"{_FORMAT} {tokenizers.__version__} ".encode(), digest_size=_DIGEST_BYTES)
    digest.update((folder / "tokenizer.json").read_bytes())
    digest.update(packed)
    return digest.digest()

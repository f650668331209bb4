"""Measure how similar source texts are: by identifiers, by code without layout, by windows of tokens."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import U64, Ints

NEAR_DUPLICATE = 0.8  # Jaccard index of identifiers from which two files count as versions of each other
WINDOW_TOKENS = 13
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_COMMENTS = re.compile(r"(?:#|//).*")
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def identifiers(text: str) -> frozenset[str]:
    """The identifiers of a text, including those in comments."""
    return frozenset(_IDENTIFIER.findall(text))


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """Intersection over union. Example: {a, b}, {b, c} -> 1/3"""
    both = len(first & second)
    return both / max(1, len(first) + len(second) - both)


def code_digest(text: str) -> str:
    """A digest that ignores comments and white space."""
    return hashlib.sha256("".join(without_comments(text).split()).encode("utf-8", "surrogatepass")).hexdigest()


def without_comments(text: str) -> str:
    """Remove what looks like a comment: unrelated files share licence headers."""
    return _COMMENTS.sub("", text)


def varied_windows(
    documents: Sequence[Ints], min_distinct: int, length: int = WINDOW_TOKENS
) -> npt.NDArray[np.bool_]:
    """Which windows of `window_hashes` hold enough distinct ids: number tables are similar by chance. -> [W]"""
    parts = [np.empty(0, dtype=bool)]
    for ids in documents:
        if len(ids) >= length:
            ordered = np.sort(np.lib.stride_tricks.sliding_window_view(ids, length), axis=1)
            parts.append((np.diff(ordered, axis=1) != 0).sum(axis=1) + 1 >= min_distinct)
    return np.concatenate(parts)


def window_hashes(documents: Sequence[Ints], length: int = WINDOW_TOKENS) -> U64:
    """Hash each run of `length` ids within a document. -> [W], unsorted."""
    parts = [np.empty(0, dtype=np.uint64)]
    for ids in documents:
        count = len(ids) - length + 1
        if count <= 0:
            continue
        hashed = np.zeros(count, dtype=np.uint64)
        for place in range(length):
            hashed = (hashed ^ ids[place : place + count].astype(np.uint64)) * _HASH_FACTOR
            hashed ^= hashed >> np.uint64(29)
        parts.append(hashed)
    return np.concatenate(parts)

"""How alike source texts are: by their identifiers, by their code without layout, by windows of their tokens.

Knows texts and ids only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import U64, Ints

NEAR = 0.8  # Jaccard index of identifiers from which two files count as versions of one another
WINDOW = 13  # tokens
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_COMMENTS = re.compile(r"(?:#|//).*")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def identifiers(text: str) -> frozenset[str]:
    """The words of a text, those in comments too."""
    return frozenset(_IDENTIFIER.findall(text))


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """How much two sets share: 1 for equal ones. Example: {a, b}, {b, c} -> 1/3"""
    both = len(first & second)
    return both / max(1, len(first) + len(second) - both)


def code_digest(text: str) -> str:
    """A digest that comments and white space do not change. Roughly: what looks like a comment is one."""
    return hashlib.sha256("".join(without_comments(text).split()).encode("utf-8", "surrogatepass")).hexdigest()


def without_comments(text: str) -> str:
    """A text without what looks like comments: licences stand in unrelated files."""
    return _COMMENTS.sub("", text)


def telling(documents: Sequence[Ints], least: int, length: int = WINDOW) -> npt.NDArray[np.bool_]:
    """Which windows hold `least` different ids: tables of numbers are alike by chance. -> [W], as of `windows`."""
    parts = [np.empty(0, dtype=bool)]
    for ids in documents:
        if len(ids) >= length:
            ordered = np.sort(np.lib.stride_tricks.sliding_window_view(ids, length), axis=1)
            parts.append((np.diff(ordered, axis=1) != 0).sum(axis=1) + 1 >= least)
    return np.concatenate(parts)


def windows(documents: Sequence[Ints], length: int = WINDOW) -> U64:
    """A hash of each run of `length` ids within a document; equal runs have equal hashes. -> [W], not sorted."""
    parts = [np.empty(0, dtype=np.uint64)]
    for ids in documents:
        count = len(ids) - length + 1
        if count <= 0:
            continue
        hashed = np.zeros(count, dtype=np.uint64)
        for place in range(length):
            hashed = (hashed ^ ids[place : place + count].astype(np.uint64)) * _FACTOR
            hashed ^= hashed >> np.uint64(29)
        parts.append(hashed)
    return np.concatenate(parts)

"""Texts as ids, encoded piece by piece: after an edit, only the pieces that changed are encoded again.

In: a text. Out: the ids of the whole text. Knows no documents.

Byte-level tokenizers cut a text before a line end behind a letter or digit, and between a line end and a letter,
whatever stands around it: what is encoded piece by piece has the ids of the whole. Where a tokenizer does not pass
a check of that, as SentencePiece vocabularies, whose blanks are letters, a text is one piece.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import Protocol

import numpy as np

from ngram_builders.arrays import I32

_CUT = re.compile(r"(?<=[^\W_])(?=\n)|(?<=\S\n)(?=[^\W\d_])")
_CROSSING = re.compile(rb"[A-Za-z0-9]\n|\S\n[A-Za-z]")  # in tokens that stand across such places
_KEPT_PIECES = 1 << 16  # more than a file has; 400 bytes each
_SAMPLE = (
    "def read(path_1):\n    return path\n\n\nclass Élan\n\t'''😀'''  \n  x2\n\n    # 日本\n   \nit's\nX_\n"
    "ab\n)\n7\n\n\n\nend\n//\nlet x = 1;\nif (x == 10) {\n  y\n}\n{'a':\n'b\n\n\tc'}\r\nd\n"
)


class Tokenizer(Protocol):
    """The tokenizer of a model."""

    end_of_text: int
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without marks of any kind."""

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of each id."""


class TextEncoder:
    """Encodes texts, and keeps the ids of their pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._encode_piece = lru_cache(_KEPT_PIECES)(lambda piece: np.array(tokenizer.encode(piece), np.int32))
        self._lengths = np.array([len(piece) for piece in tokenizer.pieces], dtype=np.int64)
        cut = chain.from_iterable(map(tokenizer.encode, _CUT.split(_SAMPLE)))
        is_crossed = any(map(_CROSSING.search, tokenizer.pieces))
        self._can_cut = not is_crossed and list(cut) == tokenizer.encode(_SAMPLE)

    def pieces(self, text: str) -> list[str]:
        """The parts of a text that are encoded apart."""
        return _CUT.split(text) if self._can_cut else [text]

    def encode(self, text: str) -> I32:
        """The ids of a text. [T]"""
        return np.concatenate([self._encode_piece(piece) for piece in self.pieces(text)])

    def around(self, text: str, start: int, end: int) -> tuple[I32, I32]:
        """The ids of the whole tokens before the character `start`, and of those from the character `end` on."""
        ids = self.encode(text)
        ends = np.cumsum(self._lengths[ids])
        if not len(ids) or ends[-1] != len(text.encode()):  # the ids spell other bytes
            return self.encode(text[:start]), self.encode(text[end:])
        first = np.searchsorted(ends, len(text[:start].encode()), side="right")
        last = np.searchsorted(ends, len(text[:end].encode()), side="left") + 1 if end else 0
        return ids[:first], ids[last:]

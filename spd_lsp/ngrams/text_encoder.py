"""Texts as ids, encoded piece by piece: after an edit, only the pieces that changed are encoded again.

In: a text, and the pieces of it that were encoded before. Out: the ids of the whole text. Knows no documents.

Byte-level tokenizers cut a text before a line end behind a letter or digit, and between a line end and a letter,
whatever stands around it: what is encoded piece by piece has the ids of the whole. Where a tokenizer does not pass
a check of that, as SentencePiece vocabularies, whose blanks are letters, a text is one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from ngram_builders.arrays import I32, I64

_CUT = re.compile(r"(?<=[^\W_])(?=\n)|(?<=\S\n)(?=[^\W\d_])")
_CROSSING = re.compile(rb"[A-Za-z0-9]\n|\S\n[A-Za-z]")  # in tokens that stand across such places
_LONGEST = 100_000  # characters of a piece, which take 100 ms; longer ones, mostly data, are cut anywhere
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


Known = dict[str, list[int]]  # the ids of pieces


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text's ids, and where each token ends in its bytes; no ends if the ids spell other bytes."""

    text: str
    ids: I32  # [T]
    ends: I64 | None  # [T]
    known: Known


class TextEncoder:
    """Encodes texts, and texts that were edited since."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._lengths = np.array([len(piece) for piece in tokenizer.pieces], dtype=np.int64)
        cut = chain.from_iterable(map(tokenizer.encode, _CUT.split(_SAMPLE)))
        is_crossed = any(map(_CROSSING.search, tokenizer.pieces))
        self._can_cut = not is_crossed and list(cut) == tokenizer.encode(_SAMPLE)

    def pieces(self, text: str) -> Iterator[str]:
        """The parts of a text that are encoded apart."""
        if not self._can_cut:
            yield text
            return
        for piece in _CUT.split(text):
            for start in range(0, len(piece), _LONGEST):
                yield piece[start : start + _LONGEST]

    def encode(self, text: str, known: Known | None = None) -> EncodedText:
        """Encode a text, of which some pieces are known."""
        pieces = list(self.pieces(text))
        before = known or {}
        now = {piece: before.get(piece) or self.tokenizer.encode(piece) for piece in dict.fromkeys(pieces)}
        ids = np.fromiter(chain.from_iterable(map(now.__getitem__, pieces)), np.int32)
        ends = np.cumsum(self._lengths[ids])
        is_spelled = (int(ends[-1]) if len(ends) else 0) == len(text.encode())
        return EncodedText(text, ids, ends if is_spelled else None, now)

    def around(self, encoded: EncodedText, start: int, end: int) -> tuple[I32, I32]:
        """The ids of the whole tokens before the character `start`, and of those from the character `end` on."""
        text = encoded.text
        if encoded.ends is None:
            return self.encode(text[:start]).ids, self.encode(text[end:]).ids
        first = np.searchsorted(encoded.ends, len(text[:start].encode()), side="right")
        last = np.searchsorted(encoded.ends, len(text[:end].encode()), side="left") + 1 if end else 0
        return encoded.ids[:first], encoded.ids[last:]

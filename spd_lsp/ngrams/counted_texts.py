"""Texts that are counted beside a table, in one suffix array that is sorted again when they are others.

In: texts as ids, and who holds them. Out: an array to add or subtract, and texts to copy from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ngram_builders.arrays import Ints
from ngram_builders.index.occurrences import SearchedTexts
from ngram_builders.index.query import Signed
from ngram_builders.index.suffix_array import SuffixArray, build_suffix_array


@dataclass(frozen=True, slots=True, eq=False)
class CountedText:
    """A text as it is counted: whole, or in two streams around the line that is being written."""

    holder: str  # the path of its file, or the name of its document
    key: Hashable  # equal keys mean equal text
    streams: tuple[Ints, ...]
    lines: int = 0  # line ends, those between two streams included


class SortedTexts:
    """Some texts and their suffix array."""

    def __init__(self) -> None:
        self.texts: Sequence[CountedText] = ()
        self.array: SuffixArray | None = None

    def update(self, texts: Sequence[CountedText]) -> None:
        """Sort these texts, unless that is done: 1 to 10 ms for a file, 100 ms for a million tokens."""
        if list(texts) != list(self.texts):
            self.texts = texts
            streams = [ids for text in texts for ids in text.streams]
            self.array = build_suffix_array(streams, lists=False) if streams else None

    def signed(self, sign: int = 1) -> tuple[Signed, ...]:
        """The array as a part of a pool of counts; nothing without texts."""
        return () if self.array is None else (Signed(self.array, sign),)

    def searched(self, label: Callable[[object], str], trust: float = 1.0) -> list[SearchedTexts]:
        """The texts to copy from; nothing without texts. label: a holder for a person to read."""
        if self.array is None:
            return []
        parts = [(text.holder, text.lines if n else None) for text in self.texts for n in range(len(text.streams))]
        return [SearchedTexts(self.array, trust=trust, holder=parts.__getitem__, label=label)]

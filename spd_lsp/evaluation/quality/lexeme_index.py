"""Copy the longest match: what followed the text left of the cursor where it stands elsewhere.

A baseline without a model and without a table, and a measure of what there is to copy. Texts are compared by
lexemes, so that blanks do not matter. Knows no tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import Ints

_MAX_RUN = 64  # lexemes; longer matches are not told apart
_MAX_PLACES = 1_000  # whose continuations are counted; more hardly change which is most frequent
_REACH = 4_000  # characters before the cursor in which so many lexemes are looked for
_LEXEME = re.compile(r"\w+|[^\w\s]|\n\s*")  # a word, a sign, or the end of a line with the blank lines after it
_BEGUN_WORD = re.compile(r"(?<!\w)\w*\Z")  # tried once a word, so in linear time
_SEPARATOR, _LINE_END = -1, 0


class LexemeIndex:
    """Where each lexeme of some texts stands."""

    def __init__(self, texts: Sequence[str], vocabulary: dict[str, int] | None = None) -> None:
        """`vocabulary`, the numbers of lexemes, is shared with other indexes and grows."""
        self.texts = texts
        self.vocabulary = {"\n": _LINE_END} if vocabulary is None else vocabulary
        ids: list[int] = []
        ends: list[int] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            found = [*_LEXEME.finditer(text)]
            ids += [_SEPARATOR, *self.numbers(match[0] for match in found)]
            ends += [0, *(match.end() for match in found)]
            owners += [owner] * (len(found) + 1)
        self.ids = np.array([*ids, _SEPARATOR], dtype=np.int64)
        self.ends = np.array(ends, dtype=np.int64)  # of each lexeme in its text, in characters
        self.owners = np.array(owners, dtype=np.int64)  # the number of the text of each lexeme
        self.order = np.argsort(self.ids[:-1], kind="stable")
        self.sorted = self.ids[self.order]

    def numbers(self, lexemes: Iterator[str]) -> list[int]:
        """The number of each lexeme; a new one gets the next."""
        known = self.vocabulary
        return [known.setdefault("\n" if lexeme[0] == "\n" else lexeme, len(known)) for lexeme in lexemes]

    def places(self, run: Sequence[int], without: Collection[int]) -> list[Ints]:
        """Where the last 1, 2, 3 ... lexemes of a run end, as long as they stand anywhere in texts but these."""
        if not run:
            return []
        first, last = np.searchsorted(self.sorted, [run[-1], run[-1] + 1])
        found = self.order[first:last]
        found = found[self.ids[found + 1] != _SEPARATOR]  # at the end of a text nothing follows
        found = found[~np.isin(self.owners[found], list(without))]
        levels: list[Ints] = []
        for back in range(1, len(run) + 1):
            if not len(found):
                break
            levels.append(found)
            if back < len(run):
                found = found[self.ids[found - back] == run[-1 - back]]
        return levels

    def continuation(self, place: int, begun: str) -> str:
        """The rest of the line behind a lexeme, without what is `begun` of it; empty if it begins otherwise."""
        text = self.texts[int(self.owners[place])]
        end = int(self.ends[place])
        line_end = text.find("\n", end)
        rest = text[end : line_end if line_end >= 0 else len(text)].rstrip()
        if not begun:
            return rest
        rest = rest.lstrip()
        return rest[len(begun) :] if rest.startswith(begun) else ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The texts of a package without the file under test and its near duplicates, and that file without a line."""

    package: LexemeIndex
    removed: Collection[int]  # texts of the package that are not known
    own: LexemeIndex  # of the text above the line and of that below


def find_copies(indexes: Sequence[LexemeIndex], before: str, without: Collection[int], most: int) -> list[str]:
    """Return what follows the longest run before the cursor elsewhere, most frequent first, then shorter runs.

    `without`: texts of the last index that do not count. Indexes share a vocabulary; among equally frequent texts
    those of the first index come first. A word begun at the cursor is no lexeme yet: what follows begins with it.
    """
    begun = _BEGUN_WORD.search(before[-_REACH:])
    word = begun[0] if begun else ""
    left = before[: len(before) - len(word)]
    run = indexes[0].numbers(match[0] for match in _LEXEME.finditer(left[-_REACH:]))[-_MAX_RUN:]
    levels = [index.places(run, without if index is indexes[-1] else ()) for index in indexes]
    found: dict[str, None] = {}  # in order
    for length in range(max(map(len, levels), default=0), 0, -1):
        texts = Counter(_continuations(indexes, levels, length, word, is_blank_left=left[-1:].isspace()))
        found |= dict.fromkeys(text for text, _ in texts.most_common() if text.strip())
        if len(found) >= most:
            break
    return list(found)[:most]


def _continuations(
    indexes: Sequence[LexemeIndex],
    levels: Sequence[Sequence[Ints]],
    length: int,
    word: str,
    *,
    is_blank_left: bool,
) -> Iterator[str]:
    """What follows each place of a run of this length, from the end of the first index back."""
    for index, found in zip(indexes, levels, strict=True):
        places = found[length - 1][::-1].tolist() if length <= len(found) else []
        for place in places[:_MAX_PLACES]:
            text = index.continuation(place, word)
            if text or not word:
                yield text.lstrip() if is_blank_left and not word else text

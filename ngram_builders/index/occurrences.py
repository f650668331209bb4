"""Finds the longest ends of a history in other texts, and the tokens that follow there: lines to copy.

In: suffix arrays of texts, the last tokens of a history, and ways to write it otherwise. Out: the places of its
longest matches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.index.suffix_array import SuffixArray

_DEPTH = 32  # tokens of a match; of longer ones no more is known
_MAX_PLACES = 48  # of one array
_PLACES_PER_LENGTH = 16


class Occurrence(NamedTuple):
    """A place where the end of a history stands, in some text."""

    length: int  # tokens of the history's end that stand there
    document: int
    next: tuple[int, ...]  # the ids that follow
    trust: float = 1.0  # of its table, up to 1
    at: int = 0  # how many ids of the document come before these


class Around(NamedTuple):
    """A text, and a place in it."""

    label: str
    before: Ints
    after: Ints = np.empty(0, np.int64)
    lines: int | None = None  # line ends of the whole text, where what is before is not all that is


class Rewriting(NamedTuple):
    """How ids are written elsewhere, such as at another level of indentation, and what is written there here."""

    there: Callable[[Sequence[int]], Sequence[int]]
    here: Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True, slots=True)
class SearchedTexts:
    """Texts that a history is looked for in: of a table, or such as were written since."""

    array: SuffixArray
    skipped: frozenset[int] = frozenset()  # streams that are out of date
    trust: float = 1.0  # up to 1
    # The file, say, that has a text, and how many line ends that has, if this is the end of it; None: not known.
    holder: Callable[[int], tuple[object, int | None] | None] = lambda document: None
    label: Callable[[object], str] = str  # of a holder, for a person to read

    def find(self, history: Sequence[int], follow: int, longer_than: int = 0) -> list[Occurrence]:
        """Return places where the end of a history stands, with up to `follow` ids behind it there."""
        places = _find(self.array, history, _PLACES_PER_LENGTH, follow, self.skipped, longer_than)
        return list(islice(places, _MAX_PLACES))

    def around(self, document: int, at: int) -> Around | None:
        """Return a text with its label, cut at a place; None if its file is not known."""
        if (of := self.holder(document)) is None:
            return None
        holder, lines = of
        ids = self.array.stream(document)
        return Around(self.label(holder), ids[:at], ids[at:], lines)


def _find(
    array: SuffixArray, history: Sequence[int], n: int, follow: int, skipped: Container[int], longer_than: int
) -> Iterator[Occurrence]:
    """Yield places where the end of a history stands, the longest matches first, `n` of each length at most."""
    spans = array.intervals(history, _DEPTH)
    if not spans:
        return
    first = end = _nearest(array, history, spans)
    for length in range(len(spans), longer_than, -1):
        left, right = range(spans[length - 1][0], first), range(end, spans[length - 1][1])
        step = max(1, -(-(len(left) + len(right)) // n))
        for rank in (*left[::step], *right[::step]):
            place = int(array.places[rank])
            stream = array.stream_at(place)
            if stream not in skipped:
                begin, stop = int(array.breaks[stream]), int(array.breaks[stream + 1])
                following = array.ids[array.text[max(place - follow, begin + 1) : place]]
                yield Occurrence(length, stream, tuple(following[::-1].tolist()), at=stop - place)
        first, end = spans[length - 1]


def _nearest(array: SuffixArray, history: Sequence[int], spans: Sequence[tuple[int, int]]) -> int:
    """The rank among the longest matches at which a longer one would stand."""
    first, end = spans[-1]
    if len(spans) >= min(len(history), _DEPTH):
        return first
    number = int(np.searchsorted(array.ids[1:], history[-1 - len(spans)])) + 1  # perhaps of no token here
    places, text = array.places, array.text
    with suppress(IndexError):  # as in `SuffixArray.intervals`
        return bisect_left(range(end), number, first, key=lambda rank: text[places[rank] + len(spans)])
    return first


def find_occurrences(
    texts: Sequence[SearchedTexts], history: Sequence[int], follow: int, rewritings: Iterable[Rewriting] = ()
) -> list[Occurrence]:
    """Return places in several tables' texts, the longest matches first; documents are numbered apart.

    Of a rewritten history those places whose match is longer than any of the history as it is.
    """
    found = _find_in_each(texts, history, follow)
    longest = max((place.length for place in found), default=1)
    for there, here in rewritings:
        rewritten = there(history[-_DEPTH:])
        longer = _find_in_each(texts, rewritten, follow, longest) if rewritten != history[-_DEPTH:] else []
        known = {place[1:-1] for place in longer}
        found = [place for place in found if place[1:-1] not in known]
        found += [place._replace(next=tuple(here(place.next))) for place in longer]
    return sorted(found, key=lambda place: -place.length)


def text_around(texts: Sequence[SearchedTexts], document: int, at: int) -> Around | None:
    """`SearchedTexts.around`, of a document as `find_occurrences` numbers them."""
    document, number = divmod(document, len(texts))
    return texts[number].around(document, at)


def _find_in_each(
    texts: Sequence[SearchedTexts], history: Sequence[int], follow: int, longer_than: int = 0
) -> list[Occurrence]:
    return [
        place._replace(document=place.document * len(texts) + number, trust=one.trust)
        for number, one in enumerate(texts)
        for place in one.find(history, follow, longer_than)
    ]

"""Texts as ids, read backwards, and every place in them sorted by the ids from there on: a suffix array.

In: streams of token ids. Out: the interval of places where a history stands, for every length of its end (Liu et
al., "Infini-gram: Scaling Unbounded n-gram Language Models to a Trillion Tokens", COLM 2024, section 3). Read
backwards, what stands before a place is what follows a history, and a longer history narrows an interval: one
search finds every order, and counting what follows a context is looking at one interval.

Ids are renumbered to those that occur, so that two bytes hold them; 0 stands between two streams. Places that
nothing follows are left out.

Dimensions: T ids in the text, P places, N distinct ids, S streams, E entries of lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from ngram_builders.arrays import F64, I64, U32, U64, Ints

BREAK = 0  # stands before and behind every stream; no token has this number
WIDE = 1024  # places; what follows a context that stands more often is listed
_NEAR = 64  # ranks in which the end of an interval is looked for first: most are that short
_DEPTH = 32  # tokens of a match; of longer ones no more is known
_MAX_PLACES = 48  # of one array
_PLACES_PER_LENGTH = 16
_LISTED_LENGTHS = 5  # contexts of so many tokens at most are listed: those of the orders 2 ... 6

try:
    from pydivsufsort import divsufsort  # type: ignore[import-untyped]
except ImportError:  # no wheel, as on musl
    divsufsort = None


@dataclass(frozen=True, eq=False)
class SuffixArray:
    """Streams read backwards, with breaks around them, and where each run of ids stands in them."""

    text: Ints  # [T] numbers of ids, BREAK around every stream; u16, or u32 where they do not fit
    places: U32  # [P] places in `text`, sorted by the numbers from there on
    ids: U32  # [N + 1] the token that each number stands for, ascending; that of BREAK means nothing
    firsts: U32  # [N + 2] the rank of the first place of each number
    breaks: U32  # [S + 1] where the breaks stand
    wide: U64  # the wide intervals, ascending: first rank << 32 | end
    wide_ends: U32  # [wide] where the list of each ends
    wide_numbers: Ints  # [E] what follows there, ascending in each list
    wide_counts: U32  # [E] and how often

    def intervals(self, history: Sequence[int], longest: int) -> list[tuple[int, int]]:
        """The ranks of the places where the last 1, 2, ... tokens of a history stand: [first, end) of each length.

        As many as there are lengths that stand somewhere, `longest` at most.
        """
        found: list[tuple[int, int]] = []
        text, places, numbers, firsts = self._views
        ranks = range(len(places))
        first, end = 0, len(ranks)
        try:
            for length, token in enumerate(reversed(history[-longest:])):
                number = numbers[token] if token < len(numbers) else BREAK
                if number == BREAK:
                    break
                if length == 0:
                    first, end = firsts[number], firsts[number + 1]
                elif end - first == 1:  # most are: one look instead of a search
                    end -= text[places[first] + length] != number
                else:
                    first = bisect_left(ranks, number, first, end, key=lambda rank: text[places[rank] + length])
                    near = min(first + _NEAR, end)
                    last = bisect_right(ranks, number, first, near, key=lambda rank: text[places[rank] + length])
                    if last == near:  # there may be more
                        last = bisect_right(ranks, number, near, end, key=lambda rank: text[places[rank] + length])
                    end = last
                if first >= end:
                    break
                found.append((first, end))
        except IndexError:  # places out of order, which only `Table.verify` sees, may lead beyond the text
            pass
        return found

    def following(self, first: int, end: int) -> Ints:
        """The numbers of what follows the places of an interval. [end - first]"""
        return self.text.take(self.places[first:end] - 1)

    def tally(self, first: int, end: int) -> tuple[Ints, Ints]:
        """The numbers of what follows the places of an interval, ascending, and how often each does."""
        if end - first > WIDE:
            key = first << 32 | end
            at = bisect_left(self.wide.data, key)
            if at < len(self.wide) and self.wide[at] == key:
                listed = slice(int(self.wide_ends[at - 1]) if at else 0, int(self.wide_ends[at]))
                return self.wide_numbers[listed], self.wide_counts[listed]
        return tally(self.following(first, end))

    def counts(self, first: int, end: int, tokens: Ints) -> F64:
        """How often each of some tokens follows the places of an interval."""
        numbers = self._numbers.take(tokens, mode="clip")  # of those beyond the last: BREAK, which follows nothing
        listed, counts = self.tally(first, end)
        at = listed.searchsorted(numbers)
        found: F64 = counts.take(at, mode="clip").astype(np.float64)
        found[listed.take(at, mode="clip") != numbers] = 0
        return found

    def stream(self, number: int) -> Ints:
        """The tokens of a stream."""
        return self.ids[self.text[self.breaks[number] + 1 : self.breaks[number + 1]][::-1]]

    def stream_at(self, place: int) -> int:
        """The stream that a place is in."""
        return bisect_right(self.breaks.data, place) - 1

    @property
    def tokens(self) -> int:
        """How many ids there are."""
        return len(self.text) - len(self.breaks)

    @cached_property
    def _numbers(self) -> Ints:
        """Token -> number; BREAK if it does not occur, as the last one."""
        numbers = np.zeros(int(self.ids[-1]) + 2, self.text.dtype)
        numbers[self.ids[1:]] = np.arange(1, len(self.ids))
        return numbers

    @cached_property
    def _views(self) -> tuple[memoryview, ...]:
        """Text, places, numbers, firsts: memory views are quicker where single values are read."""
        return self.text.data, self.places.data, self._numbers.data, self.firsts.data


def build_suffix_array(streams: Iterable[Ints], *, lists: bool = True) -> SuffixArray:
    """Sort every place of some streams of ids. lists: whether what follows wide contexts is listed, too."""
    # 1. Join the streams backwards, with breaks around them.
    boundary = np.array([-1], np.int32)
    parts = [boundary]
    for stream in streams:
        parts += [np.asarray(stream)[::-1].astype(np.int32), boundary]
    joined = np.concatenate(parts)
    del parts
    # 2. Renumber what occurs.
    occurs = np.zeros(int(joined.max()) + 2, bool)
    occurs[joined + 1] = True
    values = np.flatnonzero(occurs)
    numbers = np.zeros(len(occurs), np.int64)
    numbers[values] = np.arange(len(values))
    ids = np.maximum(values - 1, 0).astype("<u4")
    text = numbers[joined + 1].astype("<u2" if len(values) <= 2**16 else "<u4")
    del joined
    # 3. Sort; what nothing follows is not listed.
    breaks = np.flatnonzero(text == BREAK).astype("<u4")
    places = _sort(text)
    is_listed = text != BREAK
    is_listed[breaks[:-1] + 1] = False
    places = places[is_listed[places]]
    firsts = np.concatenate(([0], np.cumsum(np.bincount(text[is_listed], minlength=len(ids))))).astype("<u4")
    del is_listed
    # 4. List what follows wide contexts.
    wide = _list_wide(text, places) if lists and len(places) > WIDE else ()
    intervals, ends, entries, counts = wide or (np.empty(0, kind) for kind in ("<u8", "<u4", "<u2", "<u4"))
    return SuffixArray(text, places, ids, firsts, breaks, intervals, ends, entries.astype(text.dtype), counts)


def _list_wide(text: Ints, places: U32) -> tuple[U64, U32, Ints, U32]:
    """Every interval of a context that stands in more than WIDE places, and what follows it how often."""
    following = text[places.astype(np.int64) - 1]
    begins = np.zeros(len(places), bool)  # where the interval of a context of this length begins
    begins[0] = True
    is_whole = np.ones(len(places), bool)  # whether no break is within the context
    found: dict[int, tuple[Ints, I64]] = {}
    for length in range(_LISTED_LENGTHS):
        # A break is behind every place, so the last places end in one: nothing lies beyond the text.
        there = text[np.minimum(places.astype(np.int64) + length, len(text) - 1)]
        begins[1:] |= there[1:] != there[:-1]
        is_whole &= there != BREAK
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(places))
        listed = is_whole[starts] & (ends - starts > WIDE)
        for first, end in zip(starts[listed].tolist(), ends[listed].tolist(), strict=True):
            found.setdefault(first << 32 | end, tally(following[first:end]))
    keys = sorted(found)
    lists = [found[key] for key in keys]
    empty = np.empty(0, text.dtype)
    return (
        np.array(keys, "<u8"),
        np.cumsum([len(numbers) for numbers, _ in lists]).astype("<u4"),
        np.concatenate([empty, *(numbers for numbers, _ in lists)]),
        np.concatenate([empty, *(counts for _, counts in lists)]).astype("<u4"),
    )


def tally(numbers: Ints) -> tuple[Ints, I64]:
    """Each number once, ascending, and how often it occurs."""
    if len(numbers) > WIDE:
        counts = np.bincount(numbers)
        found = np.flatnonzero(counts)
        return found, counts[found]
    ordered = np.sort(numbers)
    edges = np.concatenate((_TRUE[: len(ordered)], ordered[1:] != ordered[:-1], _TRUE)).nonzero()[0]
    return ordered[edges[:-1]], edges[1:] - edges[:-1]


_TRUE = np.array([True])


def _sort(text: Ints) -> U32:
    """Every place of a text, sorted by all that stands from there on; the end of the text comes first."""
    if divsufsort is None or len(text) < 2:
        return _sort_by_doubling(text)
    width = text.dtype.itemsize
    whole = divsufsort(text.astype(text.dtype.newbyteorder(">")).view(np.uint8))  # bytes sort as numbers do
    places = np.empty(len(text), "<u4")
    at = 0
    for start in range(0, len(whole), 1 << 22):  # in pieces, as memory decides how long a text can be
        piece = whole[start : start + (1 << 22)]
        piece = piece[piece % width == 0] // width
        places[at : at + len(piece)] = piece
        at += len(piece)
    return places


def _sort_by_doubling(text: Ints) -> U32:
    """Sort in NumPy, by h = 1, 2, 4 ... ids: two places are compared by their ranks and those h places further.

    Manber and Myers, "Suffix arrays: a new method for on-line string searches", 1990.
    """
    ranks = text.astype(np.int64) + 1
    h = 1
    while True:
        further = np.zeros_like(ranks)  # 0 beyond the end
        further[:-h] = ranks[h:]
        keys, ranks = np.unique(ranks << 32 | further, return_inverse=True)
        if len(keys) == len(text):
            return np.argsort(ranks).astype("<u4")
        ranks += 1
        h *= 2


# --- Lines to copy: the places of the longest ends of a history --------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class SearchedTexts:
    """Texts that a history is looked for in: of a table, or such as were written since."""

    array: SuffixArray
    skipped: frozenset[int] = frozenset()  # streams that are out of date
    trust: float = 1.0  # up to 1
    # The file, say, that has a text, and how many line ends that has, if this is the end of it; None: not known.
    holder: Callable[[int], tuple[object, int | None] | None] = lambda document: None
    label: Callable[[object], str] = str  # of a holder, for a person to read

    def find(self, history: Sequence[int], follow: int) -> list[Occurrence]:
        """Return places where the end of a history stands, with up to `follow` ids behind it there."""
        places = _find(self.array, history, _PLACES_PER_LENGTH, follow, self.skipped)
        return list(islice(places, _MAX_PLACES))

    def around(self, document: int, at: int) -> Around | None:
        """Return a text with its label, cut at a place; None if its file is not known."""
        if (of := self.holder(document)) is None:
            return None
        holder, lines = of
        ids = self.array.stream(document)
        return Around(self.label(holder), ids[:at], ids[at:], lines)


def _find(
    array: SuffixArray, history: Sequence[int], n: int, follow: int, skipped: Container[int]
) -> Iterator[Occurrence]:
    """Yield places where the end of a history stands, the longest matches first, `n` of each length at most."""
    spans = array.intervals(history, _DEPTH)
    if not spans:
        return
    first = end = _nearest(array, history, spans)
    for length in range(len(spans), 0, -1):
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


def find_occurrences(texts: Sequence[SearchedTexts], history: Sequence[int], follow: int) -> list[Occurrence]:
    """Return places in several tables' texts, the longest matches first; documents are numbered apart."""
    found = [
        place._replace(document=place.document * len(texts) + number, trust=one.trust)
        for number, one in enumerate(texts)
        for place in one.find(history, follow)
    ]
    return sorted(found, key=lambda place: -place.length)


def text_around(texts: Sequence[SearchedTexts], document: int, at: int) -> Around | None:
    """`SearchedTexts.around`, of a document as `find_occurrences` numbers them."""
    document, number = divmod(document, len(texts))
    return texts[number].around(document, at)

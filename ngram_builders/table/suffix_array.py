"""Where a run of tokens stands in some texts, however long it is: a suffix array of the texts read backwards.

In: texts as ids, the last tokens of a history, and ways to write it otherwise. Out: every place where most of them
stand, and what follows there. N-grams have a longest order; here a context is as long as its longest match, up to
DEPTH tokens (Liu et al., "Infini-gram: Scaling Unbounded n-gram Language Models to a Trillion Tokens", COLM 2024,
section 3: backoff to the longest suffix that occurs). Read backwards, the texts that share a context lie side by
side, those that share a longer one within them: backing off widens an interval.

Ids are stored big-endian, so that bytes compare as ids do. The arrays come from files and may hold anything: a
damaged one gives wrong places, and no error.

Dimensions: T tokens, D documents.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ngram_builders.arrays import U8, Ints
from ngram_builders.ngrams import token_bits

DEPTH = 32  # tokens of a match; of longer ones no more is known
SUFFIX_BYTES = 3  # little-endian
_MAX_PLACES = 48  # of one table, and of the texts that are being written
_PLACES_PER_LENGTH = 16
_BREAK = -1  # between two texts; no token has this id


class Occurrence(NamedTuple):
    """A place where the end of a history stands, in some text."""

    length: int  # tokens of the history's end that stand there
    document: int
    next: tuple[int, ...]  # the ids that follow
    trust: float = 1.0  # how far its table is believed, up to 1
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


@dataclass(frozen=True, slots=True, eq=False)
class SuffixArray:
    """Documents one after the other, each with an end-of-text before it and behind it, read backwards."""

    text: Ints  # [T] their ids, big-endian
    suffixes: U8  # [T * SUFFIX_BYTES] every place in `text`, sorted by the DEPTH ids from there on
    documents: Ints  # [D] where each begins in `text`: with the end-of-text behind it

    def find(
        self, history: Sequence[int], n: int, follow: int, skipped: Container[int] = (), longer_than: int = 0
    ) -> Iterator[Occurrence]:
        """Yield places where the end of a history stands, the longest matches first, `n` of each length at most.

        With the `follow` ids that come next there. Documents in `skipped` are left out.
        """
        width = self.text.itemsize
        data = self.text.view(np.uint8).data
        packed = self.suffixes.data
        ranks = range(len(packed) // SUFFIX_BYTES)
        needle = _backwards(history, self.text.dtype)

        def place_of(rank: int) -> int:
            return int.from_bytes(packed[rank * SUFFIX_BYTES : (rank + 1) * SUFFIX_BYTES], "little")

        def read(rank: int, length: int = len(needle)) -> bytes:
            start = place_of(rank) * width
            return bytes(data[start : start + length])

        first = end = bisect_left(ranks, needle, key=read)
        length = len(needle) // width + 1
        while True:
            neighbours = (rank for rank in (first - 1, end) if rank in ranks)
            common = max((_common_prefix(read(rank), needle) // width for rank in neighbours), default=0)
            length = min(common, length - 1)  # in an array that is not sorted it might not fall
            if length <= longer_than:
                return
            part = needle[: length * width]
            key = partial(read, length=len(part))
            widened = bisect_left(ranks, part, hi=first, key=key), bisect_right(ranks, part, lo=end, key=key)
            left, right = range(widened[0], first), range(end, widened[1])
            step = max(1, -(-(len(left) + len(right)) // n))  # none if the file was cut meanwhile
            first, end = widened
            for rank in (*left[::step], *right[::step]):
                if found := self._place(place_of(rank), length, follow, skipped):
                    yield found

    def places(self) -> Ints:
        """Return the suffixes as numbers. [T]"""
        wide = np.zeros((len(self.suffixes) // SUFFIX_BYTES, 4), dtype=np.uint8)
        wide[:, :SUFFIX_BYTES] = self.suffixes[: len(wide) * SUFFIX_BYTES].reshape(-1, SUFFIX_BYTES)
        return wide.reshape(-1).view("<u4")

    def documents_forwards(self) -> Iterator[Ints]:
        """Yield the ids of each document."""
        ends = [*self.documents[1:].tolist(), len(self.text) - 1]
        for start, end in zip(self.documents.tolist(), ends, strict=False):
            yield self.text[start + 1 : end][::-1]

    def _place(self, place: int, length: int, follow: int, skipped: Container[int]) -> Occurrence | None:
        """What follows a place; None where nothing does."""
        document = bisect_right(self.documents.data, place - 1) - 1
        if document in skipped or not 0 < place <= len(self.text):
            return None
        following = self.text[max(place - follow, 0) : place]
        return Occurrence(length, document, tuple(following[::-1].tolist()), at=self._end(document) - place)

    def _end(self, document: int) -> int:
        """Where a document begins, read forwards."""
        return int(self.documents[document + 1]) if document + 1 < len(self.documents) else len(self.text) - 1

    def beginning(self, document: int, count: int) -> Ints:
        """Return so many ids of a document."""
        end = self._end(document)
        return self.text[max(end - count, 0) : end][::-1]


def _backwards(history: Sequence[int], dtype: np.dtype[Any]) -> bytes:
    """The end of a history as it stands in a text that is read backwards."""
    return np.array(history[-DEPTH:][::-1]).astype(dtype).tobytes()


def _common_prefix(first: bytes, second: bytes) -> int:
    """How many bytes two strings share at their start."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def join_backwards(streams: Iterable[Ints]) -> Ints:
    """Return texts as one array, each read backwards, with breaks around them."""
    parts = [mark := np.array([_BREAK])]
    for stream in streams:
        parts += [stream[::-1], mark]
    return np.concatenate(parts)


def scan(joined: Ints, history: Sequence[int], n: int, follow: int, longer_than: int = 1) -> list[Occurrence]:
    """Return places in joined texts, which are not sorted: the `n` longest matches of two ids or more.

    Of equally long ones those in the first texts, and there the nearest to the end.
    """
    wanted = np.asarray(history[-DEPTH:][::-1])
    if len(wanted) < 2 or len(joined) < 4:
        return []
    hits = np.flatnonzero((joined[:-1] == wanted[0]) & (joined[1:] == wanted[1]))
    hits = hits[joined[hits - 1] != _BREAK]  # else nothing follows
    lengths = np.full(len(hits), 2)
    longer = np.arange(len(hits))
    for length in range(2, len(wanted)):  # a table of numbers has nearly as many hits as tokens
        ends = hits[longer] + length  # none beyond the last break
        longer = longer[joined[ends] == wanted[length]]
        if not len(longer):
            break
        lengths[longer] = length + 1
    longest = np.argsort(-lengths, kind="stable")[:n]
    breaks = np.flatnonzero(joined == _BREAK) if len(longest) else longest
    found = [(int(hits[i]), int(lengths[i])) for i in longest[lengths[longest] > longer_than]]
    numbered = [(place, length, int(np.searchsorted(breaks, place)) - 1) for place, length in found]
    return [
        Occurrence(
            length,
            number,
            tuple(joined[max(place - follow, breaks[number] + 1) : place][::-1].tolist()),
            at=int(breaks[number + 1]) - place,
        )
        for place, length, number in numbered
    ]


@dataclass(frozen=True, slots=True)
class SearchedTexts:
    """Texts that a history is looked for in: of a table, less those that changed, and those that changed."""

    table: SuffixArray | None = None
    removed: frozenset[int] = frozenset()  # texts of the table that are out of date
    added: Ints | None = None  # joined
    trust: float = 1.0  # how far they are believed, up to 1
    # The file, say, that has a text, and how many line ends that has, if this is the end of it; None: not known.
    holder: Callable[[int], tuple[object, int | None] | None] = lambda document: None
    label: Callable[[object], str] = str  # of a holder, for a person to read

    def find(self, history: Sequence[int], follow: int, longer_than: int = 0) -> list[Occurrence]:
        """Return places where the end of a history stands, with up to `follow` ids behind it there."""
        found: list[Occurrence] = []
        if self.table is not None:
            places = self.table.find(history, _PLACES_PER_LENGTH, follow, self.removed, longer_than)
            found += islice(places, _MAX_PLACES)
        if self.added is not None:  # no text of a table has a number below 0
            written = scan(self.added, history, _MAX_PLACES, follow, longer_than)
            found += (place._replace(document=-1 - place.document) for place in written)
        return found

    def around(self, document: int, at: int) -> Around | None:
        """Return what is known of a text, with a place in it; None if that is nothing."""
        if (of := self.holder(document)) is None:
            return None
        holder, lines = of
        if document >= 0:
            before = self.table.beginning(document, at) if self.table else np.empty(0, np.int64)
            return Around(self.label(holder), before)
        assert self.added is not None
        breaks = np.flatnonzero(self.added == _BREAK)
        ids = self.added[breaks[-1 - document] + 1 : breaks[-document]][::-1]
        return Around(self.label(holder), ids[:at], ids[at:], lines)


def find_occurrences(
    texts: Sequence[SearchedTexts], history: Sequence[int], follow: int, rewritings: Iterable[Rewriting] = ()
) -> list[Occurrence]:
    """Return places in several tables' texts, the longest matches first; documents are numbered apart.

    Of a rewritten history those places whose match is longer than any of the history as it is.
    """
    found = _find_in_each(texts, history, follow)
    longest = max((place.length for place in found), default=1)
    for there, here in rewritings:
        rewritten = there(history[-DEPTH:])
        longer = _find_in_each(texts, rewritten, follow, longest) if rewritten != history[-DEPTH:] else []
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


def build_suffix_array(documents: Iterable[Ints], end_of_text: int, vocab_size: int) -> SuffixArray:
    """Sort documents, given without their end-of-text; they need not be in memory together."""
    dtype = text_dtype(vocab_size)
    boundary = np.array([end_of_text], dtype=dtype)
    backwards = [np.asarray(ids)[::-1].astype(dtype) for ids in documents]
    text = np.concatenate([*(part for ids in backwards for part in (boundary, ids)), boundary])
    text = text.astype(dtype, copy=False)
    starts = np.cumsum([0, *(len(ids) + 1 for ids in backwards)])[:-1]
    del backwards
    if len(text) > 256**SUFFIX_BYTES:
        raise ValueError(f"{len(text):,} tokens are more than a suffix array can address")
    return SuffixArray(text, pack_places(_sort_suffixes(text)), starts.astype("<u4"))


def pack_places(places: Ints) -> U8:
    """Return places in SUFFIX_BYTES each."""
    return np.ascontiguousarray(places.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :SUFFIX_BYTES]).reshape(-1)


def text_dtype(vocab_size: int) -> str:
    """The smallest big-endian type that holds every token."""
    return ">u2" if token_bits(vocab_size) == 16 else ">u4"


def _sort_suffixes(text: Ints) -> Ints:
    """Sort all places by the ids from there on, at least DEPTH of them; equal ones in the order of their places.

    Prefix doubling: what is sorted by h ids is sorted by 2 h ids by the ranks of a place and the one h further.
    """
    keys, h = _first_keys(text)
    order = np.argsort(keys, kind="stable").astype(np.uint32)  # narrow, as memory decides how long a text can be
    keys = keys[order]
    slots = np.arange(len(text), dtype=np.uint32)
    places = order
    ranks = np.zeros(len(text) + 2 * DEPTH, dtype=np.uint32)  # 0 beyond the end
    while True:
        is_first = np.empty(len(keys) + 1, dtype=bool)  # of its group
        is_first[[0, -1]] = True
        np.not_equal(keys[1:], keys[:-1], out=is_first[1:-1])
        del keys
        ranks[places] = np.maximum.accumulate(np.where(is_first[:-1], slots + np.uint32(1), np.uint32(0)))
        open_ = ~(is_first[:-1] & is_first[1:])
        slots = slots[open_]
        places = places[open_]
        if h >= DEPTH or not len(places):
            return order
        keys = ranks[places].astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= ranks[places + np.uint32(h)]
        sort = np.argsort(keys, kind="stable")
        places = places[sort]
        keys = keys[sort]
        del sort
        order[slots] = places
        h *= 2


def _first_keys(text: Ints) -> tuple[Ints, int]:
    """As many ids as 64 bits hold, from each place on, and how many; an id counts one more, so that 0 is no id."""
    bits = 8 * text.dtype.itemsize
    h = 64 // bits
    keys = np.zeros(len(text), dtype=np.uint64)
    for distance in range(h):
        keys <<= np.uint64(bits)
        there = keys[: max(0, len(text) - distance)]  # beyond the end is 0
        there |= text[distance:]
        there += np.uint64(1)
    return keys, h

"""What changed since a table was built, as signed counts in memory: table and overlay together are up to date.

In: texts as arrays of ids, and who holds them: files, buffers, accepted lines. Out: columns, queried in one pool
with the table's. Knows ids and keys, neither texts nor files. One thread changes an overlay; readers take its
`columns` at any time without waiting: a change publishes new columns and leaves the old ones as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.ngrams import ORDERS, Run, check_orders, count_streams, merge, negate
from ngram_builders.table.format import Columns
from ngram_builders.table.suffix_array import SearchedTexts, SuffixArray, join_backwards
from ngram_builders.table.writer import build_columns

Streams = Sequence[Ints]

MAX_NGRAMS = 600_000  # text of about 220,000 tokens, 15 MB
# A change is added to the first level; a level that is full is merged into the next. So a change costs as little
# after many changes as after one, and there are never more sets of columns than levels.
LEVEL_SIZES = (4_096, 65_536, 2**31)
_BREAK = -1  # between two streams; no token has this id
_EMPTY = Run(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int32))


class Overlay:
    """Signed counts of all that was added and removed."""

    def __init__(self, *, vocab_size: int, orders: Sequence[int] = ORDERS, max_ngrams: int = MAX_NGRAMS) -> None:
        self.vocab_size = vocab_size
        self.orders = check_orders(orders)
        self.max_ngrams = max_ngrams
        self.levels: list[Run] = [_EMPTY] * len(LEVEL_SIZES)
        self.level_columns: list[Columns | None] = [None] * len(LEVEL_SIZES)
        self.columns: tuple[Columns, ...] = ()
        self.full = False  # whether a change was refused

    @property
    def size(self) -> int:
        """How many n-grams are held."""
        return sum(map(len, self.levels))

    def replace(self, old: Streams, new: Streams, *, share: float = 1.0) -> bool:
        """Replace the n-grams of some streams by those of others; False if there is no room for them.

        Only the surroundings of the first and last difference are counted. share: how much of `max_ngrams` to use.
        """
        windows = _changed_windows(_join(old), _join(new), self.orders[-1] - 1)
        if not any(map(len, windows)):
            return True
        if self.size + 2 * sum(map(len, windows)) > self.max_ngrams * share:
            self.full = True
            return False
        removed, added = (self._count(window) for window in windows)
        self._add(merge([added, negate(removed)]))
        return True

    def _count(self, joined: Ints) -> Run:
        """The n-grams of joined streams."""
        parts = np.split(joined, np.flatnonzero(joined == _BREAK))
        streams = [part[part != _BREAK] for part in parts]
        return count_streams(streams, orders=self.orders, vocab_size=self.vocab_size)

    def _add(self, run: Run) -> None:
        """Add signed counts and publish the result."""
        for level, size in enumerate(LEVEL_SIZES):
            run = merge([self.levels[level], run])
            kept = run if len(run) <= size else _EMPTY
            self.levels[level] = kept
            self.level_columns[level] = build_columns(kept, self.vocab_size) if len(kept) else None
            if kept is run:
                break
        self.columns = tuple(columns for columns in self.level_columns if columns)


def _join(streams: Streams) -> Ints:
    """Streams as one array, with breaks between them. Example: [1, 2], [3] -> [1, 2, BREAK, 3]"""
    parts: list[Ints] = []
    for stream in streams:
        parts += [np.array([_BREAK]), stream] if parts else [stream]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _changed_windows(old: Ints, new: Ints, margin: int) -> tuple[Ints, Ints]:
    """Both arrays from the first to the last difference, with `margin` more values on each side.

    An n-gram of margin + 1 tokens or fewer that is not in the window of one array is in the other as well.
    """
    before = common_prefix_length(old, new)
    after = common_prefix_length(old[before:][::-1], new[before:][::-1])
    if before + after == len(old) == len(new):
        return old[:0], new[:0]
    start = max(0, before - margin)
    return tuple(ids[start : len(ids) - after + min(margin, after)] for ids in (old, new))  # type: ignore[return-value]


def common_prefix_length(first: Ints, second: Ints) -> int:
    """How many values two arrays share at their start."""
    length = min(len(first), len(second))
    different = first[:length] != second[:length]
    at = int(different.argmax()) if length else 0
    return at if length and different[at] else length


@dataclass(frozen=True, slots=True, eq=False)
class CountedText:
    """A text as it is counted: equal keys mean equal text."""

    key: Hashable
    streams: tuple[Ints, ...]
    lines: int = 0  # line ends, those between two streams included


class Ledger:
    """Which text each holder has now. A text counts once, however many have it.

    The overlay has the difference between these texts and those that the table was built from.
    """

    def __init__(
        self,
        overlay: Overlay,
        built_from: Mapping[Hashable, Hashable] | None = None,
        read: Callable[[Hashable], tuple[Ints, ...] | None] = lambda key: None,
    ) -> None:
        """built_from: holder -> key of the texts in the table; read: the streams of such a key, if known."""
        self.overlay = overlay
        self.read = read
        self.built_from: frozenset[Any] = frozenset((built_from or {}).values())
        self.keys: dict[Hashable, Hashable] = dict(built_from or {})
        self.holders = Counter(self.keys.values())
        self.texts: dict[Hashable, CountedText] = {}  # those that are held and not in the table
        self.hidden: set[Hashable] = set()  # holders whose texts are still counted, but no longer searched

    def put(self, holder: Hashable, text: CountedText | None, *, share: float = 1.0) -> bool:
        """Let a holder have this text, or none; False, and nothing changed, if that cannot be counted."""
        old = self.keys.get(holder)
        if text is not None and text.key == old:
            self.hidden.discard(holder)
            return True
        removed = self.streams(old) if old is not None and self.holders[old] == 1 else ()
        added = text.streams if text is not None and not self.holders[text.key] else ()
        if removed is None or not self.overlay.replace(removed, added, share=share):
            return False
        if old is not None:
            self._release(holder, old)
        if text is not None:
            self.keys[holder] = text.key
            self.holders[text.key] += 1
            self.texts.setdefault(text.key, text)
        return True

    def hide(self, holders: Iterable[Hashable]) -> None:
        """Search the texts of these no more, until each is put again: that costs nothing, counting does."""
        self.hidden |= self.keys.keys() & set(holders)

    def reveal(self, holders: Iterable[Hashable]) -> None:
        """Search the texts of these again."""
        self.hidden.difference_update(holders)

    def streams_of(self, holder: Hashable) -> tuple[Ints, ...] | None:
        """A holder's text; None if it has none or its ids are no longer known."""
        return self.streams(self.keys[holder]) if holder in self.keys else None

    def streams(self, key: Hashable) -> tuple[Ints, ...] | None:
        """A held text; None if its ids are no longer known."""
        return self.texts[key].streams if key in self.texts else self.read(key)

    def searched_texts(
        self, tables: Sequence[SuffixArray | None] = (), documents: Sequence[Sequence[Hashable]] = ()
    ) -> list[SearchedTexts]:
        """Return the texts of a table's layers as they are now, and those that are in none.

        documents: the keys of each layer's texts, None where a later layer removed one. A layer of other texts is
        left out.
        """
        shown = self.holders.keys() - self._hidden_keys()
        written = shown - self.built_from
        held = [self.texts[key] for key in reversed(self.texts) if key in written]  # the newest first
        added = join_backwards([stream for text in held for stream in text.streams])
        parts = [(text.key, text.lines if n else None) for text in held for n in range(len(text.streams))]
        gone = {None, *(self.built_from - shown)}
        found = [
            SearchedTexts(
                table,
                frozenset(number for number, key in enumerate(keys) if key in gone),
                holder=partial(self._holder, keys, parts),
            )
            for table, keys in zip(tables, documents, strict=False)
            if table is not None and len(table.documents) == len(keys)
        ]
        last = found[-1] if found else SearchedTexts(holder=partial(self._holder, (), parts))
        return [*found[:-1], replace(last, added=added)]

    def _holder(
        self, keys: Sequence[Hashable], parts: Sequence[tuple[Hashable, int | None]], document: int
    ) -> tuple[Hashable, int | None] | None:
        """Who has the text of a document, and its line ends, if it is an end; None once nobody has."""
        wanted, lines = (keys[document], None) if document >= 0 else parts[-1 - document]
        return next(((holder, lines) for holder, key in self.keys.items() if key == wanted), None)

    def _hidden_keys(self) -> set[Hashable]:
        """The texts that only hidden holders have."""
        hidden = Counter(self.keys[holder] for holder in self.hidden)
        return {key for key, count in hidden.items() if count == self.holders[key]}

    def _release(self, holder: Hashable, key: Hashable) -> None:
        """Note that a holder no longer has a text."""
        self.hidden.discard(holder)
        del self.keys[holder]
        self.holders[key] -= 1
        if not self.holders[key]:
            del self.holders[key]
            self.texts.pop(key, None)

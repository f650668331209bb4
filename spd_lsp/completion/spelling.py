"""What a draft may spell at the cursor: token by token, every text that can follow, and no other.

A cursor may split a word, and where tokenizers cut words, blanks and line ends depends on what follows: behind
`x = pri` there may be ` print` or ` pri` and `vy`, and eight blanks are seven and ` return`. So the last tokens
are taken back, and drafts spell their bytes again. Byte-pair encoding cuts the beginning of a text as it cuts
the whole (Berglund and van der Merwe, "Formalizing BPE Tokenization", 2023). So if the token that holds the
cursor begins at byte j, those before it are the tokens of the text up to j. A path is such a list of tokens, for
each j where some token goes on like the text, and for the cursor itself. What all paths begin with is certain.

In: a vocabulary and the ids of the text before the cursor. Out: the ids that are certain, the bytes behind them,
and the ids that may continue a draft. Knows no model.
"""

from __future__ import annotations

import string
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

import numpy as np

from ngram_builders.arrays import Ids

Path = tuple[int, ...]
Encode = Callable[[str], list[int]]

_LONGEST = 128  # bytes before the cursor of a token that holds it
_ALIKE = 4  # tokens with the same letter behind the cursor that are tried behind another token
_MAX_TRIED = 256
_MAX_REMEMBERED = 50_000
_CUT_WITH = 4  # tokens
# What may follow, by its first byte, with texts of each kind that tokenizers tell apart: behind blanks, it decides
# how these are cut; some tokenizers look two characters ahead.
_KINDS: tuple[tuple[bytes, tuple[str, ...]], ...] = (
    (string.ascii_letters.encode(), ("x", "X")),
    (string.digits.encode(), ("1",)),
    (b"\"'`", ('"', "'s")),
    (bytes(set(string.punctuation.encode()) - set(b"\"'`")), ("(", "=", "/x", "#", "_")),
    (bytes(range(0x80, 0xFF)), ("é", "中", "…")),
    (b"\n\r", ("\n", "\nx", "\n\n", "\r\n", "\r\n\r\n")),
    (b" ", (" x", "  x", " (", " \n")),
    (b"\t", ("\tx", "\t\n")),
)
ANY = bytes(range(0xFF))  # no UTF-8 text holds 0xff
BUT_BLANKS = bytes(sorted(set(ANY) - set(b" \t\n\r")))


class Pieces:
    """The bytes of a vocabulary's tokens, by what they begin with, and which of them can stand side by side."""

    def __init__(self, pieces: Sequence[bytes], encode: Encode, order: Ids | None = None) -> None:
        """`encode` gives the ids of a text that others precede; `order` is that of the same pieces, if known."""
        self.of = pieces
        self.encode = encode
        self.order = self._find_order() if order is None else order
        self._sorted = [pieces[i] for i in self.order]
        self._ids = self.order
        self._marks = np.array([i for i, piece in enumerate(pieces) if not piece], dtype=np.int64)
        self._beginning: dict[bytes, Ids] = {}
        self._neighbours: dict[tuple[Path, bytes], bool] = {}

    def _find_order(self) -> Ids:
        """The ids that have bytes, in the order of these."""
        order = sorted((i for i, piece in enumerate(self.of) if piece), key=self.of.__getitem__)
        # A byte may have a token beside that of its letter, which the tokenizer never gives.
        same = {i for pair in pairwise(order) if self.of[pair[0]] == self.of[pair[1]] for i in pair}
        return np.array([i for i in order if i not in same or not self._is_other(i)], dtype=np.int64)

    def _is_other(self, i: int) -> bool:
        """Whether another token has the same bytes, and is the one that the tokenizer gives."""
        ids = self._encoded(self.of[i])
        return ids is not None and len(ids) == 1 and ids != [i]

    def _encoded(self, text: bytes) -> list[int] | None:
        """The ids of bytes; None if they are no whole characters."""
        try:
            return self.encode(text.decode())
        except UnicodeDecodeError:
            return None

    def spelled(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids."""
        return b"".join(self.of[i] for i in ids if i < len(self.of))

    def up_to(self, end: int, ids: Sequence[int]) -> Path | None:
        """The first ids, which spell this many bytes; None if none do."""
        ends = [0, *accumulate(len(self.of[i]) for i in ids)]
        return tuple(ids[: ends.index(end)]) if end in ends else None

    def going_on(self, start: bytes, following: bytes = ANY) -> Ids:
        """Return the ids whose bytes begin with these and go on with one of `following`."""
        low, high = self._range(start)
        low = bisect_right(self._sorted, start, lo=low, hi=high)
        if following == ANY:
            return self._ids[low:high]
        gaps = [
            bound for byte in sorted(set(ANY) - set(following)) for bound in self._range(start + bytes([byte]))
        ]
        bounds = [low, *gaps, high]
        return np.concatenate([self._ids[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)])

    def beginning_with(self, following: bytes) -> Ids:
        """Return the ids whose bytes begin with one of these, and those that end a text."""
        if following not in self._beginning:
            self._beginning[following] = np.concatenate((self._marks, self.going_on(b"", following)))
        return self._beginning[following]

    def _range(self, start: bytes) -> tuple[int, int]:
        low = bisect_left(self._sorted, start)
        return low, bisect_left(self._sorted, start + b"\xff" * 8, lo=low)

    def go_on(self, start: bytes) -> bool:
        """Whether the bytes of a token begin with these and go on."""
        at = bisect_right(self._sorted, start)
        return at < len(self._sorted) and self._sorted[at].startswith(start)

    def can_precede(self, last: Path, start: bytes) -> bool:
        """Whether the tokenizer puts a token that begins with these bytes and goes on behind others.

        The last two are looked at: in ` {"_stat` the quote decides whether the underscore begins a word.
        """
        return any(self._is_neighbour(before, start) for before in dict.fromkeys((last[-1:], last[-2:])))

    def _is_neighbour(self, last: Path, start: bytes) -> bool:
        key = last, start
        if key not in self._neighbours:
            if len(self._neighbours) >= _MAX_REMEMBERED:
                self._neighbours.clear()
            before = self.spelled(last)
            texts = ((i, self._encoded(before + self.of[i])) for i in self._samples(start))
            # Behind a part of a character nothing can be tried, and any token may follow.
            self._neighbours[key] = self._encoded(before) is None or any(ids == [*last, i] for i, ids in texts)
        return self._neighbours[key]

    def cuts_before(self, text: bytes, start: bytes) -> Iterator[list[int]]:
        """Yield how a text that ends with a blank is cut with tokens behind it that begin with these bytes."""
        if text[-1:].isspace():
            for i in islice(self._samples(start), _CUT_WITH):
                if (ids := self._encoded(text + self.of[i])) is not None:
                    yield ids

    def _samples(self, start: bytes) -> Iterator[int]:
        """Yield the tokens that go on behind these bytes, or if there are many, some of each byte that follows."""
        at, end = self._range(start)
        at = bisect_right(self._sorted, start, lo=at, hi=end)
        if end - at <= _MAX_TRIED:
            yield from self._ids[at:end].tolist()
            return
        while at < end:
            after = self._range(self._sorted[at][: len(start) + 1])[1]
            yield from self._ids[at : after : max(1, (after - at) // _ALIKE)].tolist()
            at = after


@dataclass(frozen=True, slots=True)
class Spelling:
    """The ways to spell the bytes that were taken back at a cursor."""

    pieces: Pieces
    healed: bytes  # every draft begins with these bytes
    nodes: Mapping[Path, frozenset[int]]  # the beginnings of paths, and the tokens that go on from each
    ends: Mapping[Path, bytes]  # paths, and the first byte of what may follow the cursor behind them

    def allowed(self, ids: Path) -> Ids | None:
        """Return the ids that may follow those of a draft; None: any."""
        if ids not in self.nodes:
            return None
        left = self.healed[len(self.pieces.spelled(ids)) :]
        following = self.ends.get(ids, b"")
        if not left:
            return None if following == ANY else self.pieces.beginning_with(following)
        next_ids = np.array(sorted(self.nodes[ids]), dtype=np.int64)
        return np.concatenate((next_ids, self.pieces.going_on(left, following))) if following else next_ids

    def split(self) -> tuple[Path, Spelling]:
        """Return the tokens that every draft would begin with, and how the rest may be spelled."""
        certain: Path = ()
        while (following := self.allowed(certain)) is not None and len(following) == 1:
            certain = (*certain, int(following[0]))
        n = len(certain)
        nodes = {path[n:]: ids for path, ids in self.nodes.items() if path[:n] == certain}
        ends = {path[n:]: following for path, following in self.ends.items() if path[:n] == certain}
        return certain, Spelling(self.pieces, self.healed[len(self.pieces.spelled(certain)) :], nodes, ends)


def spell(pieces: Pieces, ids: Sequence[int], following: bytes = ANY) -> tuple[list[int], Spelling]:
    """Return the ids of a text that stay as they are whatever follows it, and how the rest may be spelled.

    `following`: the bytes that what follows may begin with.
    """
    text = pieces.spelled(ids)
    begins = [at for at in range(max(0, len(text) - _LONGEST), len(text)) if _is_whole(text[at:])]
    begins = [at for at in begins if pieces.go_on(text[at:]) and len(pieces.going_on(text[at:], following))]
    kept = _find_restart(pieces, ids, text, min(begins, default=len(text)))
    start = len(pieces.spelled(ids[:kept]))
    ends = _whole_paths(pieces, ids[kept:], text[start:], following)
    for at in begins:
        # A text that ends there may be cut otherwise than one that goes on.
        cuts = (pieces.encode(text[start:at].decode()), ids[kept:], *pieces.cuts_before(text[start:at], text[at:]))
        for cut in cuts:
            path = pieces.up_to(at - start, cut)
            before = (*ids[max(0, kept - 1) : kept], *(path or ()))
            if path is not None and (not before or pieces.can_precede(before, text[at:])):
                ends[path] = following
    nodes: dict[Path, set[int]] = {path: set() for path in ends}
    for path in ends:
        for n, i in enumerate(path):
            nodes.setdefault(path[:n], set()).add(i)
    frozen = {path: frozenset(next_ids) for path, next_ids in nodes.items()}
    certain, spelling = Spelling(pieces, text[start:], frozen, ends).split()
    return [*ids[:kept], *certain], spelling


def _is_whole(text: bytes) -> bool:
    """Whether no character is cut at the start."""
    return text[0] & 0xC0 != 0x80


def _whole_paths(pieces: Pieces, ids: Sequence[int], text: bytes, following: bytes) -> dict[Path, bytes]:
    """The ways in which a text is cut if a token ends with it, and the first bytes of what may follow then.

    Behind a word or a sign there is one way. Behind a blank, what follows decides, and may take the blank or not.
    """
    if text.strip() and not text[-1:].isspace():
        return {tuple(ids): following}
    found: dict[Path, set[int]] = {}
    for first, examples in _KINDS:
        if may_follow := set(first) & set(following):
            for example in examples:
                found.setdefault(_cut_before(pieces, text, example), set()).update(may_follow)
    return {path: bytes(sorted(may_follow)) for path, may_follow in found.items()}


def _cut_before(pieces: Pieces, text: bytes, example: str) -> Path:
    """How a text is cut if this follows, and the last blank is not taken."""
    ids = pieces.encode(text.decode() + example)
    ends = [0, *accumulate(len(pieces.of[i]) for i in ids)]
    n = bisect_right(ends, len(text)) - 1
    return (*ids[:n], *pieces.encode(text[ends[n] :].decode(errors="replace")))


def _find_restart(pieces: Pieces, ids: Sequence[int], text: bytes, before: int) -> int:
    """The number of first tokens behind which a text can be cut anew: a word or a line ends there."""
    end = len(text)
    for n in range(len(ids), 0, -1):
        is_blank = not text[end : end + 1].strip() and text[end - 1 : end].strip()
        if end <= before and is_blank and pieces.encode(text[end:].decode()) == list(ids[n:]):
            return n
        end -= len(pieces.of[ids[n - 1]])
    return 0

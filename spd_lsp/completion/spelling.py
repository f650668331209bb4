"""What a draft may spell at the cursor: token by token, every text that can follow, and no other.

A cursor may split a word, and where tokenizers cut words, blanks and line ends depends on what follows: behind `x = pri`
there may be ` print` or ` pri` and `vy`, and eight blanks are seven and ` return`. So the last tokens are taken back, and
drafts spell their bytes again. Byte-pair encoding cuts the beginning of a text as it cuts the whole (Berglund and van
der Merwe, "Formalizing BPE Tokenization", 2023). So if the token that holds the cursor begins at byte j, those before
it are the tokens of the text up to j. A path is such a list of tokens, for each j where some token goes on like the
text. What all paths begin with is certain, whatever follows.

In: a vocabulary and the ids of the text before the cursor. Out: the ids that are certain, the bytes behind them, and the
ids that may continue a draft. Knows no model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile

import numpy as np

from ngram_builders.arrays import Ids

Path = tuple[int, ...]
Encode = Callable[[str], list[int]]

_LONGEST = 64  # bytes that a token which holds the cursor has before it
_REACH = 256  # bytes further back from which the text is cut again
_TRIED = 256  # tokens that are tried behind another before it is believed that one can follow
# One text of each kind that tokenizers tell apart: what follows may change where the text before it is cut.
_FOLLOWING = ("x", "X", "1", "_", "(", '"', "'s", "=", "/", "é", "中", " x", " (", "\n", "\nx", "\n\n", "  x", "\tx", "")
_BLANKS = (b" ", b"\t", b"\n", b"\r")


class Pieces:
    """The bytes of a vocabulary's tokens, by what they begin with, and which of them can stand side by side."""

    def __init__(self, pieces: Sequence[bytes], encode: Encode) -> None:
        """`encode` gives the ids of a text that others precede."""
        self.of = pieces
        self.encode = encode
        order = sorted((i for i, piece in enumerate(pieces) if piece), key=pieces.__getitem__)
        self._sorted, self._ids = [pieces[i] for i in order], np.array(order, dtype=np.int64)
        self._marks = np.array([i for i, piece in enumerate(pieces) if not piece], dtype=np.int64)
        self._known: dict[tuple[int, bytes], bool] = {}

    def spelled(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids."""
        return b"".join(self.of[i] for i in ids if i < len(self.of))

    def up_to(self, end: int, ids: Sequence[int]) -> Path | None:
        """The first ids, which spell so many bytes; None if none do."""
        ends = [0, *accumulate(len(self.of[i]) for i in ids)]
        return tuple(ids[: ends.index(end)]) if end in ends else None

    def beginning_with(self, start: bytes, *, but_blanks: bool = False) -> Ids:
        """Return the ids whose bytes begin with these; but those that go on with a blank."""
        low, high = self._range(start)
        if not but_blanks:
            return self._ids[low:high]
        blanks = sorted(self._range(start + blank) for blank in _BLANKS)
        bounds = [low, *(bound for pair in blanks for bound in pair), high]
        return np.concatenate([self._ids[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)])

    def but_blanks(self) -> Ids:
        """Return all ids but those that begin with a blank."""
        return np.concatenate((self._marks, self.beginning_with(b"", but_blanks=True)))

    def _range(self, start: bytes) -> tuple[int, int]:
        low = bisect_left(self._sorted, start)
        return low, bisect_left(self._sorted, start + b"\xff" * 8, lo=low)  # no UTF-8 text holds 0xff

    def begins(self, start: bytes) -> bool:
        """Whether a token begins with these bytes."""
        low = bisect_left(self._sorted, start)
        return low < len(self._sorted) and self._sorted[low].startswith(start)

    def can_precede(self, last: int, start: bytes) -> bool:
        """Whether the tokenizer ever puts a token that begins with these bytes behind another; if unsure, yes."""
        key = last, start
        if key not in self._known:
            self._known[key] = self._find_neighbour(last, start)
        return self._known[key]

    def _find_neighbour(self, last: int, start: bytes) -> bool:
        low, high = self._range(start)
        is_tried = False
        for i in self._ids[low : min(high, low + _TRIED)].tolist():
            try:
                text = (self.of[last] + self.of[i]).decode()
            except UnicodeDecodeError:
                continue
            if self.encode(text) == [last, i]:
                return True
            is_tried = True
        return high - low > _TRIED or not is_tried


@dataclass(frozen=True, slots=True)
class Spelling:
    """The ways to spell the bytes that were taken back at a cursor."""

    pieces: Pieces
    healed: bytes  # every draft begins with these bytes
    but_blanks: bool = False  # whether no blank and no line end follows them
    paths: dict[Path, set[int]] = field(default_factory=lambda: {(): set()})  # the tokens that follow on each
    ends: frozenset[Path] = frozenset()  # behind these the token that holds the cursor may stand

    def allowed(self, ids: Path) -> Ids | None:
        """Return the ids that may follow those of a draft; None: any."""
        written = self.pieces.spelled(ids) if len(ids) <= len(self.healed) + 1 else self.healed + b"."
        left = self.healed[len(written) :]
        if len(written) > len(self.healed) or not (left or self.but_blanks):
            return None
        if not left:
            return self.pieces.but_blanks()
        following = np.array(sorted(self.paths.get(ids, ())), dtype=np.int64)
        if ids not in self.ends:
            return following
        return np.union1d(following, self.pieces.beginning_with(left, but_blanks=self.but_blanks))

    def without_certain(self) -> tuple[Path, Spelling]:
        """Return the tokens that every draft begins with, and how the rest may be spelled."""
        certain: Path = ()
        while (following := self.allowed(certain)) is not None and len(following) == 1:
            certain = (*certain, int(following[0]))
        n = len(certain)
        paths = {path[n:]: following for path, following in self.paths.items() if path[:n] == certain}
        ends = frozenset(path[n:] for path in self.ends if path[:n] == certain)
        healed = self.healed[len(self.pieces.spelled(certain)) :]
        return certain, Spelling(self.pieces, healed, self.but_blanks, paths or {(): set()}, ends)


def spell(pieces: Pieces, ids: Sequence[int], *, but_blanks: bool = False) -> tuple[list[int], Spelling]:
    """Return the ids of a text that stay as they are whatever follows it, and how the rest may be spelled.

    `but_blanks`: neither a blank nor a line end follows.
    """
    text = pieces.spelled(ids)
    begins = [at for at in range(max(0, len(text) - _LONGEST), len(text)) if _is_whole(text[at:]) and pieces.begins(text[at:])]
    kept = _find_restart(pieces, ids, text, min(begins, default=len(text)))
    start = len(pieces.spelled(ids[:kept]))
    ends = set(_probed(pieces, text[start:], but_blanks=but_blanks))
    for at in begins:
        # What follows may cut the text up to there, too: it is known, but for a text that ends there.
        for cut in (pieces.encode(text[start:at].decode()), ids[kept:]):
            if (path := pieces.up_to(at - start, cut)) is None or path in ends:
                continue
            before = path[-1] if path else ids[kept - 1] if kept else None
            if before is None or pieces.can_precede(before, text[at:]):
                ends.add(path)
    paths: dict[Path, set[int]] = {(): set()}
    for path in ends:
        for n, i in enumerate(path):
            paths.setdefault(path[:n], set()).add(i)
    certain, spelling = Spelling(pieces, text[start:], but_blanks, paths, frozenset(ends)).without_certain()
    return [*ids[:kept], *certain], spelling


def _is_whole(text: bytes) -> bool:
    """Whether no character is cut at the start."""
    return text[0] & 0xC0 != 0x80


def _probed(pieces: Pieces, text: bytes, *, but_blanks: bool) -> Iterator[Path]:
    """Yield the whole tokens of a text as it is cut with one or another text behind it."""
    for following in _FOLLOWING:
        if but_blanks and not following[:1].strip():
            continue
        ids = pieces.encode(text.decode() + following)
        whole = takewhile(lambda end: end <= len(text), accumulate(len(pieces.of[i]) for i in ids))
        yield tuple(ids[: sum(1 for _ in whole)])


def _find_restart(pieces: Pieces, ids: Sequence[int], text: bytes, before: int) -> int:
    """The number of first tokens behind which a text can be cut anew: a word or a line ends there."""
    end, tried = len(text), 0
    for n in range(len(ids), 0, -1):
        is_blank = not text[end : end + 1].strip() and text[end - 1 : end].strip()
        if end <= before and is_blank and pieces.encode(text[end:].decode()) == list(ids[n:]):
            return n
        end -= len(pieces.of[ids[n - 1]])
    return 0

"""Text to ids and back: the prompt with its fill-in-the-middle marks, and what a draft may spell at the cursor.

A cursor may split a word, and where tokenizers cut words, blanks and line ends depends on what follows: behind
`x = pri` there may be ` print` or ` pri` and `vy`. So the last word, signs or line end are taken back, and drafts
spell their bytes again, with any tokens ("token healing").

Comes in: a model's vocabulary and text. Goes out: ids, bytes, a fingerprint. Knows no model.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import groupby, takewhile
from pathlib import Path
from weakref import proxy

import numpy as np

from ngram_builders.arrays import Ids
from ngram_builders.index.suffix_array import Rewriting
from ngram_builders.token_space import TokenSpace
from spd_lsp.completion.fill_formats import choose_format
from spd_lsp.models.load import load_vocabulary

_LINES, _SHORT = 65_536, 500  # lines whose size is remembered, and characters of the longest of them
_OPENERS = (":", "{", "(", "[")
_INDENTATION = re.compile(r"^(?: {2,8}|\t)(?=\S)", re.MULTILINE)
_LEVELS = 2  # of indentation, further left and further right, at which the text before the cursor is looked for
_ANCHOR, _LONGEST_ANCHOR = "\u263a", 6  # what Code Llama and Codestral put before a text, and tokens that it has
_ANY = bytes(range(0xFF))  # no UTF-8 text holds 0xff
_BUT_BLANKS = bytes(sorted(set(_ANY) - set(b" \t\n\r")))
_Encode = Callable[[str], list[int]]
_REACH = 64  # bytes before the cursor that may be taken back
_WORD = f"{string.ascii_letters}{string.digits}_".encode() + bytes(range(0x80, 0x100))
_SIGNS = bytes(byte for byte in range(0x80) if byte not in _WORD and byte not in b" \t\n\r\f\v")
_BEHIND_INDENTATION = ("x", "(", '"', "1", "$")


class _Pieces:
    """The bytes of a vocabulary's tokens, by what they begin with."""

    def __init__(self, pieces: Sequence[bytes], encode: _Encode) -> None:
        """`encode` gives the ids of a text that others precede."""
        self.of = pieces
        self.encode = encode
        self.order = np.array(sorted((i for i, one in enumerate(pieces) if one), key=pieces.__getitem__), np.int64)
        self._sorted = [pieces[i] for i in self.order]
        self._marks = np.array([i for i, piece in enumerate(pieces) if not piece], dtype=np.int64)

    def spelled(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids."""
        return b"".join(self.of[i] for i in ids if i < len(self.of))

    def spelling(self, text: bytes) -> list[int]:
        """The ids whose bytes are the beginning of a text, or all of it."""
        found: list[int] = []
        for n in range(1, len(text) + 1):
            low = bisect_left(self._sorted, text[:n])
            found += self.order[low : bisect_right(self._sorted, text[:n], lo=low)].tolist()
        return found

    def going_on(self, start: bytes, following: bytes = _ANY) -> Ids:
        """Return the ids whose bytes begin with these and go on with one of `following`."""
        low, high = self._range(start)
        low = bisect_right(self._sorted, start, lo=low, hi=high)
        if following == _ANY:
            return self.order[low:high]
        gaps = [
            bound for byte in sorted(set(_ANY) - set(following)) for bound in self._range(start + bytes([byte]))
        ]
        bounds = [low, *gaps, high]
        return np.concatenate([self.order[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)])

    def beginning_with(self, following: bytes) -> Ids:
        """Return the ids whose bytes begin with one of these, and those that end a text."""
        return np.concatenate((self._marks, self.going_on(b"", following)))

    def _range(self, start: bytes) -> tuple[int, int]:
        low = bisect_left(self._sorted, start)
        return low, bisect_left(self._sorted, start + b"\xff" * 8, lo=low)


@dataclass(frozen=True, slots=True)
class Spelling:
    """The bytes that were taken back at a cursor."""

    pieces: _Pieces
    healed: bytes  # every draft begins with these bytes
    following: bytes  # and goes on with one of these

    def allowed(self, ids: Sequence[int]) -> Ids | None:
        """Return the ids that may follow those of a draft; None: any."""
        written = len(self.pieces.spelled(ids))
        left = self.healed[written:]
        if left:
            next_ids = np.array(self.pieces.spelling(left), dtype=np.int64)
            return np.concatenate((next_ids, self.pieces.going_on(left, self.following)))
        if written > len(self.healed) or self.following == _ANY:
            return None
        return self.pieces.beginning_with(self.following)


def _spell(pieces: _Pieces, ids: Sequence[int], following: bytes = _ANY) -> tuple[list[int], Spelling]:
    """Return the ids of a text that stay whatever follows it, and what drafts spell behind them.

    `following`: the bytes that what follows may begin with.
    """
    # 1. Read back some way, and take back what may be cut otherwise.
    kept = len(ids)
    text = b""
    while kept and len(text) < _REACH:
        kept -= 1
        text = pieces.of[ids[kept]] + text
    start = _start_of_last_piece(text)
    while kept < len(ids) and len(pieces.of[ids[kept]]) <= start:
        start -= len(pieces.of[ids[kept]])
        kept += 1
    # 2. What every draft begins with costs no token: the start of an indentation, or the only id that may follow.
    healed = pieces.spelled(ids[kept:])
    certain: list[int] = []
    if following == _BUT_BLANKS and healed.isspace():
        cuts = [pieces.encode(healed.decode() + example) for example in _BEHIND_INDENTATION]
        certain = [same[0] for same in takewhile(lambda same: len(set(same)) == 1, zip(*cuts, strict=False))]
    spelling = Spelling(pieces, healed, following)
    while (next_ids := spelling.allowed(certain)) is not None and len(next_ids) == 1:
        certain.append(int(next_ids[0]))
    left = healed[len(pieces.spelled(certain)) :]
    return [*ids[:kept], *certain], Spelling(pieces, left, following)


def _start_of_last_piece(text: bytes) -> int:
    """Where a text's end begins that tokenizers cut in one piece with what follows it.

    A word with the signs before it, signs with the line ends behind them, or blanks.
    """
    before = text.rstrip()
    if text[len(before) :].strip(b"\r\n"):
        return len(before)
    starts = [len(before)]
    if (left := before.rstrip(_SIGNS + b"_")) != before:
        starts.append(len(left.rstrip(b" \t")))
    if before == text and (left := text.rstrip(_WORD)) != text:
        starts.append(len(left.rstrip(_SIGNS).rstrip(b" \t")))
    return min(starts)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads, and what drafts spell behind it."""

    ids: list[int]  # the whole prompt, marks included
    history: list[int]  # the text left of the drafts alone, as n-grams see it
    spelling: Spelling  # of what was taken back at the cursor
    copied_behind: list[int]  # what copies follow: up to the line above where only an indentation is typed
    begun: bytes  # what is typed behind that
    fill_format: str = ""  # with which the text right of the cursor is in the prompt
    levels: Sequence[Rewriting] = ()  # other levels of indentation at which it may stand elsewhere


class ModelTokenizer:
    """A model's tokenizer."""

    def __init__(self, place: Path, fill_format: str = "auto") -> None:
        """`place`: where `locate` found the model."""
        self.vocabulary = vocabulary = load_vocabulary(place)
        self.pieces = self.vocabulary.pieces
        self.vocab_size = len(self.pieces)
        self.specials = frozenset(self.vocabulary.marks.values())
        self.fingerprint = self.vocabulary.fingerprint
        self.end_of_text = self.vocabulary.end_of_text
        self.opening = self.vocabulary.opening
        # No method is cached: it would hold this object.
        self._known_size = lru_cache(_LINES)(lambda text: len(vocabulary.encode(text)))
        self.fill_format = choose_format(fill_format, self.vocabulary.config, self.is_special)

    @property
    def space(self) -> TokenSpace:
        """What an n-gram table must share with it."""
        return TokenSpace(self.fingerprint, self.vocab_size, self.end_of_text)

    def is_special(self, name: str) -> bool:
        """Whether this is a special token of this vocabulary."""
        return name in self.vocabulary.marks

    def id_of(self, name: str) -> int:
        """Return the id of a special token."""
        return self.vocabulary.marks[name]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        return self.vocabulary.encode(text)

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the ids of many texts, encoded on all cores."""
        return self.vocabulary.encode_batch(texts)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text; cached for lines, which are counted at every keystroke."""
        return self._known_size(text) if len(text) <= _SHORT else len(self.encode(text))

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of ids; special tokens have none."""
        return b"".join(self.pieces[i] for i in ids if i < self.vocab_size)

    def ends(self, i: int) -> bool:
        """Whether an id ends a text: a special token, or one beyond the vocabulary."""
        return i in self.specials or i >= self.vocab_size

    def prompt(self, before: str, after: str, *, settled: int = 0) -> Prompt:
        """Lay out a prompt for the text around the cursor, ready to go on from the last whole token.

        Of `before`, so many characters are `settled`: they stay while someone types. Example: before `x = pri`
        gives history `x =`, and drafts spell ` pri`, ` print`, ` private` ...
        """
        whole = self.encode(before)
        history, spelling = _spell(self.spellings, whole, _BUT_BLANKS if is_indented(before) else _ANY)
        behind, begun = self._whole_lines(whole, before) or (history, spelling.healed)
        filled = self.fill_format if after else None
        cut = self._tokens_before(history, len(before[settled:].encode()) - len(spelling.healed))
        texts = {"{before}": history, "{above}": history[:cut], "{recent}": history[cut:]}
        texts |= {"{after}": self.encode_inside(after)} if filled else {}
        ids = [*self.opening]
        for part in filled.parts if filled else ("{before}",):
            ids += texts[part] if part in texts else [self.id_of(part)]
        levels = self._levels(before, begun)
        name = filled.name if filled else ""
        # A model reads at least one token; the end of the text before is what stands before every text.
        return Prompt(ids or [self.end_of_text], history, spelling, behind, begun, name, levels)

    def _whole_lines(self, ids: list[int], before: str) -> tuple[list[int], bytes] | None:
        """The tokens up to the cursor's line, and the text behind them, if only an indentation stands on it."""
        line = before[before.rfind("\n") + 1 :]
        if not line.isspace():
            return None
        left = n = 0
        while left < len(line):
            n += 1
            left += len(self.pieces[ids[-n]])
        return ids[:-n], self.bytes_of(ids[-n:])

    def _tokens_before(self, ids: Sequence[int], size: int) -> int:
        """How many ids stand before the last `size` bytes. A token with both is not among them."""
        count = len(ids)
        while size > 0 and count:
            count -= 1
            size -= len(self.pieces[ids[count]])
        return count

    def _levels(self, before: str, begun: bytes) -> list[Rewriting]:
        """The levels of indentation next to that of a text."""
        step = min(_INDENTATION.findall(before), key=len, default="    ")
        changes = [change for n in range(1, _LEVELS + 1) for change in ((step * n, ""), ("", step * n))]
        # Where tokens end at a line's end, what was taken back may be all of a blank line, but not its beginning.
        line = before[before.rfind("\n") + 1 :]
        is_taken_back = line.isspace() and begun == line.encode()
        begin, code = ("\n", r"\S") if is_taken_back else ("", r"(?:\S|\Z)")

        def moved(old: str, new: str) -> Callable[[Sequence[int]], list[int]]:
            lines = re.compile(rf"\n{old}(?=[ \t]*{code})")
            return partial(self._rewritten, lambda text: lines.sub(f"\n{new}", begin + text)[len(begin) :])

        return [Rewriting(moved(here, there), moved(there, here)) for here, there in changes]

    def _rewritten(self, change: Callable[[str], str], ids: Sequence[int]) -> list[int]:
        """The ids of a text after a change."""
        written: list[int] = []
        for is_mark, part in groupby(ids, self.ends):
            run = list(part)
            text = "" if is_mark else self.bytes_of(run).decode(errors="ignore")
            written += self.encode_inside(changed) if (changed := change(text)) != text else run
        return written

    def encode_inside(self, text: str) -> list[int]:
        """Return the ids of a text that others precede: without the blank that some tokenizers put first."""
        if not self.puts_blank_first:
            return self.encode(text)
        ids = self.encode(_ANCHOR + text)
        cut = (n for n in range(1, _LONGEST_ANCHOR) if self.bytes_of(ids[:n]) == f" {_ANCHOR}".encode())
        return ids[next(cut, 0) :]

    @cached_property
    def puts_blank_first(self) -> bool:
        """Whether a text begins with a blank that it does not have, as in SentencePiece vocabularies."""
        return self.bytes_of(self.encode("x")) == b" x"

    @cached_property
    def spellings(self) -> _Pieces:
        """The bytes of the tokens, by what they begin with."""
        return _Pieces(self.pieces, partial(ModelTokenizer.encode_inside, proxy(self)))


def is_indented(before: str) -> bool:
    """Whether the cursor stands where a line's text begins: behind blanks that a person or an editor put there.

    Not behind a line that opens a block or a bracket, if its indentation was only repeated.
    Example: `if x:\n    y()\n    ` is, `def f():\n    if x:\n    ` is not.
    """
    above, _, line = before.rpartition("\n")
    last = above.rstrip().rpartition("\n")[2]
    repeated = len(line) <= len(last) - len(last.lstrip())
    return line.isspace() and not (repeated and last.endswith(_OPENERS))

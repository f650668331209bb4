"""Text to ids and back: the prompt with its fill-in-the-middle marks, and what a draft may spell at the cursor.

A cursor may split a word, and where tokenizers cut words, blanks and line ends depends on what follows: behind
`x = pri` there may be ` print` or ` pri` and `vy`. So the last word, signs or line end are taken back, and drafts
spell their bytes again, with any tokens ("token healing").

Comes in: a model's vocabulary and text. Goes out: ids, bytes, a fingerprint. Knows no model.
"""

from __future__ import annotations

import string
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Ids
from ngram_builders.token_space import TokenSpace
from spd_lsp.completion.fill_formats import choose_format
from spd_lsp.models.load import load_vocabulary

_LINES, _SHORT = 65_536, 500  # lines whose size is remembered, and characters of the longest of them
_OPENERS = (":", "{", "(", "[")
_ANCHOR, _LONGEST_ANCHOR = "\u263a", 6  # what Code Llama and Codestral put before a text, and tokens that it has
_BLANKS = b" \t\n\r"
_REACH = 64  # bytes before the cursor that may be taken back
_WORD = f"{string.ascii_letters}{string.digits}_".encode() + bytes(range(0x80, 0x100))
_SIGNS = bytes(byte for byte in range(0x80) if byte not in _WORD and byte not in b" \t\n\r\f\v")
_BEHIND_INDENTATION = ("x", "(", '"', "1", "$")


@dataclass(frozen=True, slots=True)
class Spelling:
    """The bytes that were taken back at a cursor."""

    tokens: ModelTokenizer
    healed: bytes  # every draft begins with these bytes
    is_indented: bool  # and goes on with no blank

    def allowed(self, ids: Sequence[int]) -> Ids | None:
        """Return the ids that may follow those of a draft; None: any."""
        written = self.tokens.bytes_of(ids)
        if left := self.healed[len(written) :]:
            return self.tokens.spelling(left, self.is_indented)
        return self.tokens.starts_of_code if self.is_indented and len(written) == len(self.healed) else None


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


class ModelTokenizer:
    """A model's tokenizer: text to ids and back, and prompts."""

    def __init__(self, place: Path, fill_format: str = "auto") -> None:
        """`place`: where `locate` found the model."""
        self.vocabulary = vocabulary = load_vocabulary(place)
        self.pieces = vocabulary.pieces
        self.vocab_size = len(self.pieces)
        self.specials = frozenset(self.vocabulary.marks.values())
        self.fingerprint = vocabulary.fingerprint
        self.end_of_text = vocabulary.end_of_text
        self.opening = vocabulary.opening
        self.encode = vocabulary.encode  # the ids of a text, without special tokens
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
        history, spelling = self._taken_back(whole, is_indented(before))
        behind, begun = history, spelling.healed
        line = before[before.rfind("\n") + 1 :]
        if line.isspace():
            count = self._tokens_before(whole, len(line))
            behind, begun = whole[:count], self.bytes_of(whole[count:])
        filled = self.fill_format if after else None
        cut = self._tokens_before(history, len(before[settled:].encode()) - len(spelling.healed))
        texts = {"{before}": history, "{above}": history[:cut], "{recent}": history[cut:]}
        texts |= {"{after}": self.encode_inside(after)} if filled else {}
        ids = [*self.opening]
        for part in filled.parts if filled else ("{before}",):
            ids += texts[part] if part in texts else [self.vocabulary.marks[part]]
        name = filled.name if filled else ""
        # A model reads at least one token; the end of the text before is what stands before every text.
        return Prompt(ids or [self.end_of_text], history, spelling, behind, begun, name)

    def _taken_back(self, ids: Sequence[int], indented: bool) -> tuple[list[int], Spelling]:
        """Return the ids of a text that stay whatever follows it, and what drafts spell behind them."""
        # 1. Read back some way, and take back what may be cut otherwise.
        kept = len(ids)
        text = b""
        while kept and len(text) < _REACH:
            kept -= 1
            text = self.pieces[ids[kept]] + text
        start = _start_of_last_piece(text)
        while kept < len(ids) and len(self.pieces[ids[kept]]) <= start:
            start -= len(self.pieces[ids[kept]])
            kept += 1
        # 2. What every draft begins with costs no token: an indentation's start, or the only id that may follow.
        spelling = Spelling(self, self.bytes_of(ids[kept:]), indented)
        certain: list[int] = []
        if indented and spelling.healed.isspace():
            cuts = [self.encode_inside(spelling.healed.decode() + example) for example in _BEHIND_INDENTATION]
            certain = [same[0] for same in takewhile(lambda same: len(set(same)) == 1, zip(*cuts, strict=False))]
        while (next_ids := spelling.allowed(certain)) is not None and len(next_ids) == 1:
            certain.append(int(next_ids[0]))
        left = spelling.healed[len(self.bytes_of(certain)) :]
        return [*ids[:kept], *certain], replace(spelling, healed=left)

    def spelling(self, text: bytes, indented: bool) -> Ids:
        """Return the ids whose bytes begin a text, or begin with it; `indented`: and go on with no blank."""
        in_order, ids = self._by_bytes
        whole = [bisect_left(in_order, text[:n]) for n in range(1, len(text) + 1)]
        found = [ids[low : bisect_right(in_order, text[:n], lo=low)] for n, low in enumerate(whole, 1)]
        first = bisect_right(in_order, text, lo=whole[-1])
        longer = ids[first : bisect_left(in_order, text + b"\xff" * 8, lo=first)]  # no UTF-8 text holds 0xff
        if indented:
            longer = np.array([i for i in longer if self.pieces[i][len(text)] not in _BLANKS], dtype=np.int64)
        return np.concatenate([*found, longer])

    @cached_property
    def _by_bytes(self) -> tuple[list[bytes], Ids]:
        """The bytes of all tokens that have some, in order, and the id of each."""
        ids = sorted((i for i, piece in enumerate(self.pieces) if piece), key=self.pieces.__getitem__)
        return [self.pieces[i] for i in ids], np.array(ids, dtype=np.int64)

    @cached_property
    def starts_of_code(self) -> Ids:
        """The ids that end a text or begin with no blank."""
        marks = [i for i, piece in enumerate(self.pieces) if not piece]
        starts = [i for i in self._by_bytes[1] if self.pieces[i][0] not in _BLANKS]
        return np.array(marks + starts, dtype=np.int64)

    def _tokens_before(self, ids: Sequence[int], size: int) -> int:
        """Return how many of the ids end before the last `size` bytes of their text."""
        count = len(ids)
        while size > 0 and count:
            count -= 1
            size -= len(self.pieces[ids[count]])
        return count

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


def is_indented(before: str) -> bool:
    """Whether the cursor stands where a line's text begins: behind blanks that a person or an editor put there.

    Not behind a line that opens a block or a bracket, if its indentation was only repeated.
    Example: `if x:\n    y()\n    ` is, `def f():\n    if x:\n    ` is not.
    """
    above, _, line = before.rpartition("\n")
    last = above.rstrip().rpartition("\n")[2]
    repeated = len(line) <= len(last) - len(last.lstrip())
    return line.isspace() and not (repeated and last.endswith(_OPENERS))

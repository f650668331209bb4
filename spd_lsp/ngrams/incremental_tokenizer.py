"""Incremental tokenization: after an edit, only the lines around it are encoded again.

In: a text and its encoding before the edit. Out: the ids that encoding the whole text gives. Knows nothing of
documents or counts.

Where a token that holds a line end is followed by one that does not begin with another, pre-tokenisers start
afresh: what stands after such an anchor is encoded alike whatever stands before it. A window from anchor to
anchor is encoded, must agree with the old ids at both ends, and replaces what stood there.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import I32, U8
from ngram_builders.table.overlay import common_prefix_length

_MIN_AGREEING_TOKENS = 4  # tokens that must be the same beyond an anchor
# Tokens next to a change that are not relied on, and how many more an anchor is looked for among. The second pair
# is tried where the first finds none or does not agree; after that the whole text is encoded.
_TRIES = ((2, 128), (64, 1024))
_STEP = 16_000  # characters encoded at once where there may be pauses; about 15 ms
_MAX_AGAIN = 4  # times the length of a text; beyond that its parts are encoded apart
_LONG = 100_000  # characters beyond which a text without anchors is encoded in steps only


class Tokenizer(Protocol):
    """The tokenizer of a model."""

    end_of_text: int
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without marks of any kind."""

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of each id."""


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text's bytes, its ids, and where each token ends in the bytes; no ends if the ids spell other bytes."""

    data: bytes
    ids: I32  # [T]
    ends: npt.NDArray[np.int64] | None  # [T]

    def around(self, start: int, end: int) -> tuple[I32, I32]:
        """The ids of the whole tokens up to byte `start`, and of those from byte `end` on."""
        assert self.ends is not None
        first = int(np.searchsorted(self.ends, end, side="left")) + 1 if end else 0
        return self.ids[: cut(self.ends, start)], self.ids[first:]


def cut(ends: npt.NDArray[np.int64], place: int) -> int:
    """How many tokens end at or before this byte."""
    return int(np.searchsorted(ends, place, side="right"))


class IncrementalTokenizer:
    """Encodes texts, and encodings of texts that were edited since."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        pieces = tokenizer.pieces
        self.lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
        self.ends_line = np.array([b"\n" in piece for piece in pieces])
        self.begins_line_end = np.array([piece[:1] in (b"\n", b"\r") for piece in pieces])
        self.is_lossless = self.encode("  a\n\n é").ends is not None

    def encode(self, text: str) -> EncodedText:
        """Encode a whole text."""
        return self._with_ends(text.encode(), np.array(self.tokenizer.encode(text), dtype=np.int32))

    def _with_ends(self, data: bytes, ids: I32) -> EncodedText:
        """Ids that are known to be this text's. Some tokenizers change the text: then there are no ends."""
        ends = np.cumsum(self.lengths[ids])
        if (int(ends[-1]) if len(ends) else 0) != len(data):
            return EncodedText(data, ids, None)
        return EncodedText(data, ids, ends)

    def from_ids(self, ids: npt.NDArray[np.integer]) -> EncodedText | None:
        """The text that these are the ids of, if this tokenizer leaves texts as they are."""
        if not self.is_lossless or not len(ids) or int(ids.max()) >= len(self.lengths):
            return None
        return self._with_ends(b"".join(self.tokenizer.pieces[i] for i in ids.tolist()), ids.astype(np.int32))

    def encode_in_steps(self, text: str) -> Generator[None, None, EncodedText]:
        """Encode a whole text, pausing between steps."""
        encoded = self.encode(text[:_STEP])
        start = _STEP
        again = _MAX_AGAIN * len(text)  # characters that may be encoded again where there are no anchors
        while start < len(text):
            yield
            end = start + _STEP
            grown = self.try_update(encoded, text[:end])
            if grown is None and end <= again:
                grown = self.encode(text[:end])
                again = again - end
            encoded = grown or self._appended(encoded, text[start:end])
            start = end
        return encoded

    def update_in_steps(self, old: EncodedText | None, text: str) -> Generator[None, None, EncodedText]:
        """Encode a text where it differs from the old one, or all of it with pauses where that is much."""
        if old is not None:
            data = text.encode()
            if (
                len(data) - sum(_alike(old.data, data)) <= _STEP
                and (new := self.try_update(old, text)) is not None
            ):
                return new
        return (yield from self.encode_in_steps(text))

    def _appended(self, old: EncodedText, text: str) -> EncodedText:
        """Both encoded apart: without anchors, the whole text would be read again with each part of it."""
        new = self.encode(text)
        ids = np.concatenate((old.ids, new.ids))
        if old.ends is None or new.ends is None:
            return EncodedText(old.data + new.data, ids, None)
        return EncodedText(old.data + new.data, ids, np.concatenate((old.ends, len(old.data) + new.ends)))

    def update(self, old: EncodedText | None, text: str) -> EncodedText | None:
        """Encode a text where it differs from the old one; None where all of a long text has to be encoded."""
        new = self.try_update(old, text) if old else None
        is_long = old is not None and len(text) > _LONG
        return new if new is not None or is_long else self.encode(text)

    def try_update(self, old: EncodedText, text: str) -> EncodedText | None:
        """Encode a text where it differs from the old one; None if there are no anchors around that."""
        data = text.encode()
        if data == old.data:
            return old
        if old.ends is not None and len(old.ids):
            alike = _alike(old.data, data)
            for away, reach in _TRIES:
                ids = self.patch(old, data, alike, away, reach)
                if ids is not None:
                    return self._with_ends(data, ids)
        return None

    def patch(self, old: EncodedText, data: bytes, alike: tuple[int, int], away: int, reach: int) -> I32 | None:
        """The ids with the window around a change encoded anew; None if it finds no anchors or does not agree.

        alike: how many bytes are the same at the start and at the end.
        """
        assert old.ends is not None
        first = self.left_anchor(old, alike[0], away, reach)
        last = self.right_anchor(old, len(old.data) - alike[1], away, reach)
        if first is None or last is None:
            return None
        start = int(old.ends[first - 1]) if first else 0
        shift = len(data) - len(old.data)
        whole = last == len(old.ids)
        # Beyond the anchor a few tokens more are read than compared: the last of a window may be cut.
        beyond = len(old.ids) if whole else min(len(old.ids), last + 3 * _MIN_AGREEING_TOKENS)
        end = len(data) if beyond == len(old.ids) else int(old.ends[beyond - 1]) + shift
        window = data[start:end].decode(errors="replace")
        new = np.array(self.tokenizer.encode(window), dtype=np.int32)
        spelled = self._with_ends(data[start:end], new)
        if spelled.ends is None or not same(new, old.ids[first:], _MIN_AGREEING_TOKENS if first else 0):
            return None
        if whole:
            return np.concatenate((old.ids[:first], new))
        place = int(old.ends[last - 1]) + shift - start
        at = cut(spelled.ends, place)
        agree = min(_MIN_AGREEING_TOKENS, len(old.ids) - last)
        if at == 0 or int(spelled.ends[at - 1]) != place or not same(new[at:], old.ids[last:], agree):
            return None
        return np.concatenate((old.ids[:first], new[:at], old.ids[last:]))

    def left_anchor(self, old: EncodedText, before: int, away: int, reach: int) -> int | None:
        """The nearest anchor with some unchanged tokens between it and the first change; 0 is the text's start."""
        assert old.ends is not None
        last = cut(old.ends, before) - _MIN_AGREEING_TOKENS - away
        first = max(1, last - reach)
        places = self.anchors(old.ids, first, last + 1)
        if len(places):
            return int(places[-1])
        return 0 if last - reach < 1 else None

    def right_anchor(self, old: EncodedText, after: int, away: int, reach: int) -> int | None:
        """The second anchor beyond the last change, or the end of the text."""
        assert old.ends is not None
        first = cut(old.ends, after - 1) + away
        places = self.anchors(old.ids, first, first + reach)
        if len(places) > 1:
            return int(places[1])
        return len(old.ids) if first + reach >= len(old.ids) else None

    def anchors(self, ids: I32, start: int, end: int) -> npt.NDArray[np.intp]:
        """Tokens from start up to end that follow a line end and do not begin with another."""
        near = ids[max(start, 1) - 1 : max(end, 1)]
        found: npt.NDArray[np.intp] = np.flatnonzero(self.ends_line[near[:-1]] & ~self.begins_line_end[near[1:]])
        return found + max(start, 1)


def same(new: I32, old: I32, count: int) -> bool:
    """Whether the first so many ids are there in both and the same."""
    return len(new) >= count <= len(old) and bool(np.array_equal(new[:count], old[:count]))


def _alike(old: bytes, new: bytes) -> tuple[int, int]:
    """How many bytes are the same at the start and at the end. Example: b"aab", b"aacb" -> (2, 1)."""
    before = common_prefix_length(as_array(old), as_array(new))
    return before, common_prefix_length(as_array(old)[before:][::-1], as_array(new)[before:][::-1])


def as_array(data: bytes) -> U8:
    """View bytes as an array, without a copy."""
    return np.frombuffer(data, dtype=np.uint8)

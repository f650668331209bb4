"""What two like edits say of other places: the least general rewrite that explains both, and where it matches.

In: two edits and a text. Out: proposals. Words in which the edits differ are holes.

Example: `a.size` -> `a["size"]` and `b.width` -> `b["width"]` rewrite `.NAME` to `["NAME"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from spd_lsp.edits.edit import LINE_END, Edit, is_word

_Token = str | int  # an int is a hole
_MIN_CONTEXT = 2  # tokens around a place that are those around both edits
_MIN_TOKENS = 5  # of these and of what is replaced
_MAX_PLACES = 50
_BLANK = r"[^\S\r\n]"  # at most 80, so that the time is linear, whatever a file holds


class Proposal(NamedTuple):
    """What to write in place of a span of a document."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What to replace by what, and what stands around it; all as tokens, from left to right."""

    left: Sequence[_Token]
    old: Sequence[_Token]
    new: Sequence[_Token]
    right: Sequence[_Token]


def rewrite_of(first: Edit, second: Edit) -> Rewrite | None:
    """What two edits have in common; None if they are not alike, or so little is that it may match anywhere."""
    if len(first.old) != len(second.old) or len(first.new) != len(second.new):
        return None
    pairs = [*zip(first.old + first.new, second.old + second.new, strict=True)]
    holes = {pair: number for number, pair in enumerate(pairs) if pair[0] != pair[1]}
    tokens = [holes.get(pair, pair[0]) for pair in pairs]
    old, new = tokens[: len(first.old)], tokens[len(first.old) :]
    left = _shared(first.left, second.left, holes)[::-1]
    right = _shared(first.right, second.right, holes)
    context = [token for token in (*left, *right) if not _is_blank(token)]
    visible = [*context, *(token for token in old if not _is_blank(token))]
    is_kept = {*holes.values()} <= {*new} & {*visible}  # a word that differs is moved, not replaced or made up
    words = [isinstance(token, int) or is_word(token) for token in visible]
    if not is_kept or not all(map(is_word, sum(holes, ()))):
        return None
    return Rewrite(left, old, new, right) if _says_enough(len(context), words) else None


def _says_enough(context: int, words: Sequence[bool]) -> bool:
    return context >= _MIN_CONTEXT and len(words) >= _MIN_TOKENS and any(words)


def _is_blank(token: _Token) -> bool:
    return isinstance(token, str) and token != LINE_END and token.isspace()


def _shared(first: Sequence[str], second: Sequence[str], holes: dict[tuple[str, str], int]) -> list[_Token]:
    """The tokens with which two contexts begin alike."""
    found: list[_Token] = []
    for pair in zip(first, second, strict=False):
        if pair[0] != pair[1] and pair not in holes and not all(map(_is_blank, pair)):
            break
        found.append(holes.get(pair, pair[0]))
    return found


def proposals_of(rewrite: Rewrite, text: str) -> Iterator[Proposal]:
    """Where a rewrite matches in a text, from top to bottom, unless its result stands there already."""
    for match in islice(_pattern(rewrite).finditer(text), _MAX_PLACES):
        start, end = match.span("site")
        new = "".join(match[f"h{token}"] if isinstance(token, int) else token for token in rewrite.new)
        old = text[start:end]
        places = [at for at in range(min(len(new), start) + 1) if new.startswith(old, at)]
        if not any(text.startswith(new, start - at) for at in places):
            yield Proposal(start, end, new)


def _pattern(rewrite: Rewrite) -> re.Pattern[str]:
    """What matches the places of a rewrite; blanks may be others than in the edits."""
    seen: set[_Token] = set()

    def part(token: _Token) -> str:
        if isinstance(token, int):
            is_first = token not in seen
            seen.add(token)
            return rf"\b(?P<h{token}>\w+)\b" if is_first else rf"\b(?P=h{token})\b"
        if token.isspace():
            return rf"{_BLANK}{{1,80}}"
        return rf"\b{token}\b" if is_word(token) else re.escape(token)

    left = "".join(rf"^{_BLANK}{{0,80}}" if token == LINE_END else part(token) for token in rewrite.left)
    site = "".join(map(part, rewrite.old))
    right = "".join(rf"{_BLANK}{{0,80}}\r?$" if token == LINE_END else part(token) for token in rewrite.right)
    return re.compile(f"{left}(?P<site>{site})(?={right})", re.MULTILINE)

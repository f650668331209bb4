"""The places in a text that a rewrite matches, with what their lines have in common with the edited one.

In: a rewrite and a text. Out: sites. Knows no syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from spd_lsp.edits.rewrite import END, HOLE, START, Rewrite, context, tokenize

_MAX_SITES = 200  # of a rewrite in a text
_WORD = re.compile(r"\w")
# What keeps the time linear, whatever a file holds.
_REACH = 400  # characters of a line on each side of a site
_MAX_DOTS = 8  # in what a hole keeps
_BLANKS = r"(?<![ \t])[ \t]+"


@dataclass(frozen=True, slots=True)
class Site:
    """A place, what to write there, and how many tokens around it are those around the edit."""

    start: int
    end: int
    text: str
    left: int
    right: int
    has_word: bool  # whether a word is among them


def find_sites(rewrite: Rewrite, text: str, edited: Sequence[tuple[int, int]] = ()) -> list[Site]:
    """Where a rewrite matches in a text, in order, but for the places that were edited."""
    found = islice(_matches(rewrite, text), _MAX_SITES)
    return [one for one in found if not any(a <= one.end and one.start <= b for a, b in edited)]


def _matches(rewrite: Rewrite, text: str) -> Iterator[Site]:
    pattern = _pattern(rewrite)
    for match in pattern.finditer(text):
        start, end = match.span("site")
        written = "".join(match[f"h{token[1:]}"] if token[:1] == HOLE else token for token in rewrite.new)
        if written != text[start:end] and not _is_done(text, start, end, written):
            left, right, has_word = _agreement(rewrite, text, start, end)
            yield Site(start, end, written, left, right, has_word)


def _pattern(rewrite: Rewrite) -> re.Pattern[str]:
    """What finds the places of a rewrite; blanks may be others than in the edit."""
    seen: set[str] = set()
    parts = []
    for token in rewrite.old:
        if token[:1] == HOLE:
            name = f"h{token[1:]}"
            parts.append(f"(?P={name})" if name in seen else rf"(?P<{name}>\b\w+\b(?:\.\w+){{0,{_MAX_DOTS}}})")
            seen.add(name)
        elif token.isspace():
            parts.append(_BLANKS)
        else:
            parts.append(_exactly(token))
    if parts:
        return re.compile(f"(?P<site>{''.join(parts)})")
    before, after = rewrite.edits[0].adjacent
    left = r"(?:^[ \t]*)" if before == "\n" else _BLANKS if before.isspace() else _exactly(before)
    right = "(?=$)" if after == "\n" else r"(?=[ \t])" if after.isspace() else f"(?={_exactly(after)})"
    return re.compile(f"{left}(?P<site>){right}", re.MULTILINE)


def _exactly(token: str) -> str:
    return rf"\b{token}\b" if _WORD.match(token) else re.escape(token)


def _is_done(text: str, start: int, end: int, written: str) -> bool:
    """Whether what would be written stands there already. Example: `x` -> `self.x` in `self.x`."""
    old = text[start:end]
    if not old:
        return text.startswith(written, start) or text.endswith(written, 0, start)
    places = [at for at in range(len(written)) if written.startswith(old, at)]
    return any(at <= start and text.startswith(written, start - at) for at in places)


def _agreement(rewrite: Rewrite, text: str, start: int, end: int) -> tuple[int, int, bool]:
    """How many tokens left and right of a site are those of an edit, and whether a word is among them."""
    line = text.rfind("\n", 0, start) + 1
    left = context(reversed(tokenize(text[max(line, start - _REACH) : start])), START)
    line_end = text.find("\n", end) % (len(text) + 1)
    right = context(tokenize(text[end : min(line_end, end + _REACH)]), END)
    best = (0, 0, False)
    for edit in rewrite.edits:
        before, after = _common(left, edit.left), _common(right, edit.right)
        words = any(_WORD.match(token) for token in (*left[:before], *right[:after]))
        best = max(best, (before, after, words), key=lambda found: found[0] + found[1])
    return best


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count

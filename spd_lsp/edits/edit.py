"""An edit within a line, as tokens before and after.

In: two versions of a text. Out: the edit between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r"\w+|[\r\n]|[^\S\r\n]+|[^\w\s]")
_MAX_LINE = 2_000  # characters
_MAX_CHARS = 200  # of an edit
_CONTEXT = 8  # tokens on each side
LINE_END = "\n"  # the context's last token at either end of a line


@dataclass(frozen=True, slots=True)
class Edit:
    """What was replaced within a line by what, at an offset in the text after it; all as tokens."""

    document: str
    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]  # before it, nearest first, then LINE_END; without indentation
    right: tuple[str, ...]


def tokenize(text: str) -> list[str]:
    """Words, line ends, blanks and other characters. Example: `a +b` -> "a", " ", "+" and "b"."""
    return _TOKEN.findall(text)


def is_word(token: str) -> bool:
    """Whether a token is a name, a number or a keyword."""
    return token[:1].isalnum() or token[:1] == "_"


def changed_span(before: Sequence[str], after: Sequence[str]) -> tuple[int, int, int]:
    """Where two texts, or lists of tokens, differ: the start in both, and the end in each."""
    start = _common_length(before, after)
    most = min(len(before), len(after)) - start
    tail = _common_length(before[len(before) - most :][::-1], after[len(after) - most :][::-1])
    return start, len(before) - tail, len(after) - tail


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """How much two sequences begin with alike."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def edit_between(document: str, before: str, after: str) -> Edit | None:
    """The edit that turns a text into another: from the first token that differs in a line to the last one.

    None if several lines differ, if only blanks or one end of a pair of brackets do, or if it is long.
    """
    start, old_end, new_end = changed_span(before, after)
    start = after.rfind("\n", 0, start) + 1
    tail = after.find("\n", new_end) % (len(after) + 1) - new_end
    if max(old_end, new_end) + tail - start > _MAX_LINE:
        return None
    olds, news = tokenize(before[start : old_end + tail]), tokenize(after[start : new_end + tail])
    first, old_last, last = changed_span(olds, news)
    old, new = "".join(olds[first:old_last]), "".join(news[first:last])
    is_same = old.strip() == new.strip() or _balance(old) != _balance(new)
    if is_same or max(len(old), len(new)) > _MAX_CHARS or {"\r", "\n"} & {*old, *new}:
        return None
    at = start + sum(map(len, news[:first]))
    context = _context(news[:first][::-1]), _context(news[last:])
    return Edit(document, at, tuple(olds[first:old_last]), tuple(news[first:last]), *context)


def _context(tokens: Iterable[str]) -> tuple[str, ...]:
    """The next tokens of a line, up to and with its end."""
    line = [token for token in tokens if token not in ("\r", "\n")]
    while line and line[-1].isspace():
        line.pop()
    return (*line, LINE_END)[:_CONTEXT]


def _balance(text: str) -> list[int]:
    """How many more brackets of each kind a text opens than it closes, and whether quotes stay open."""
    brackets = [text.count(opening) - text.count(closing) for opening, closing in ("()", "[]", "{}")]
    return brackets + [text.count(quote) % 2 for quote in "'\""]

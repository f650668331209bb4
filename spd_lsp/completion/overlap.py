"""What of a draft stands behind the cursor already, on its line: brackets that are closed twice, words said twice.

In: a draft, and the text around the cursor on its line. Out: where the draft ends. Takes time linear in the texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from spd_lsp.completion.context import MAX_LINE_REACH, rest_of_line

_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_WORD = re.compile(r"\w+|[^\w\s]")  # or a sign
_REST_OF_STRING = {
    "'": re.compile(r"[^'\\\n]*(?:\\.[^'\\\n]*)*'"),
    '"': re.compile(r"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\""),
}
_TRIES = 8  # overlaps of a draft with the rest of its line that are checked; ordinary code has one or two


def find_repeat(text: str, left: str, rest: str) -> int | None:
    """Where a draft closes a bracket that the rest of the line closes: there, or where the rest begins in it.

    Example: `names)) ==` before `)` at 5; `x for x in y]` before `for x in xs]` at 2; `len(x)` before `)` nowhere.
    """
    spare = dict(_spare_closers(left[-MAX_LINE_REACH:], rest))
    if not any(closer in text for closer in spare):
        return None
    first = next((mark for _, mark in _lexemes(rest)), "")
    alike = _in_common(text, rest)
    opened: Counter[str] = Counter()
    at = None
    length = 0  # where most of the rest is said, and how much of it
    for start, mark in _lexemes(text):
        if mark == first and not opened.total() and alike[start] > length:
            at = start
            length = alike[start]
        if mark in _CLOSED_BY:
            opened[_CLOSED_BY[mark]] += 1
        elif opened[mark]:
            opened[mark] -= 1
        elif mark in spare:
            if not spare[mark]:
                return start if at is None else at
            spare[mark] -= 1
            at = None
            length = 0
    return None


def remove_overlap(text: str, after: str, left: str = "") -> str:
    """Cut off the end of a text that the document already has behind the cursor on the same line.

    Example: `len(x))` before `)` is cut to `len(x)`; `:` before `:` is cut to nothing; `info` before `or` stays.
    """
    if not (rest := rest_of_line(after)) or not text:
        return text
    last = text[-len(rest) :]
    overlaps = [len(last) - at for at, same in enumerate(_in_common(last, rest)) if at + same == len(last)]
    if overlaps:
        excess = _open_brackets(text)[0]
        spare = _spare_closers(left[-MAX_LINE_REACH:], rest)
        excess.subtract(spare)
    for n in overlaps[:_TRIES]:
        if _stands_alone(text, rest, n, excess):
            return text[:-n].rstrip() if after[0].isspace() else text[:-n]
    return text


def _stands_alone(text: str, rest: str, n: int, excess: Counter[str]) -> bool:
    """Whether the last n characters, with which the rest begins, can go: no word and no pair is cut in two.

    Closing brackets can go as far as they are in excess: the text does not open them, and nothing waits for them.
    Example: the `)` of `x)` can, that of `len(x)` cannot, nor the `o` of `info` before `or`.
    """
    kept = text[:-n]
    cut = text[-n:]
    if splits_word(kept, cut) or splits_word(cut, rest[n:]):
        return False
    if any(number > excess[mark] for mark, number in _open_brackets(cut)[0].items()):
        return False
    return all(cut.count(quote) % 2 == 0 or text.count(quote) % 2 for quote in "\"'`")


@lru_cache(64)
def _spare_closers(left: str, rest: str) -> Mapping[str, int]:
    """Of each closing bracket that the rest of the line has: how many more the text left of the cursor waits for.

    Example: `f(g(` and `)` -> one `)`; `f(` and `)` -> none.
    """
    waited = _open_brackets(left)[1]
    closed = _open_brackets(rest)[0]
    return {mark: max(0, waited[mark] - number) for mark, number in closed.items()}


def _open_brackets(text: str) -> tuple[Counter[str], Counter[str]]:
    """The closing brackets that a text does not open, and those that it waits for. Example: `a)(` -> `)`, `)`."""
    closed: Counter[str] = Counter()
    waited: Counter[str] = Counter()
    for _, mark in _lexemes(text):
        if mark in _CLOSED_BY:
            waited[_CLOSED_BY[mark]] += 1
        elif waited[mark]:
            waited[mark] -= 1
        elif mark in _CLOSED_BY.values():
            closed[mark] += 1
    return closed, waited


def _lexemes(text: str) -> Iterator[tuple[int, str]]:
    """Where each word, string and sign starts, and what it is. A quote that its line does not close is a sign.

    Example: `f('a')` -> `f`, `(`, `'a'`, `)`.
    """
    end = 0
    unclosed = {"'": 0, '"': 0}  # up to here no such quote is closed: none is looked for twice on a line
    while found := _WORD.search(text, end):
        start, end = found.span()
        mark = found[0]
        if start >= unclosed.get(mark, len(text)):
            if closed := _REST_OF_STRING[mark].match(text, end):
                end = closed.end()
            else:
                unclosed[mark] = text.find("\n", end) % (len(text) + 1)
        yield start, text[start:end]


def _in_common(text: str, other: str) -> list[int]:
    """At each place of a text, how many characters from there on the other text begins with.

    Example: ("abcab", "abd") -> 2, 0, 0, 2, 0.
    """
    start = other[: len(text)]
    return _common_with_start([*start, None, *text], len(start) + 1 + len(text))[len(start) + 1 :]


def _common_with_start(items: Sequence[object], places: int) -> list[int]:
    """At each of the first places, how many items from there on are as at the start.

    Each item is compared about once, however often the start comes again (the Z algorithm).
    """
    found = [len(items)] * min(places, 1)
    left = right = 0  # of the stretch known to be as at the start that reaches furthest
    for at in range(1, places):
        same = min(found[at - left], right - at) if at < right else 0
        while at + same < len(items) and items[same] == items[at + same]:
            same += 1
        found.append(same)
        if at + same > right:
            left, right = at, at + same
    return found


def splits_word(first: str, second: str) -> bool:
    """Whether a word spans the end of one text and the start of the next."""
    return bool(re.search(r"\w$", first[-2:]) and re.match(r"\w", second))

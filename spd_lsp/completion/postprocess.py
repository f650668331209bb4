"""The texts of drafts: where a draft ends, and what of it stands behind the cursor already.

In: token ids of drafts. Out: what a user would see of them. Knows no scores.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.masking import MARK
from ngram_builders.table.suffix_array import Place
from spd_lsp.completion.context import MAX_LINE_REACH, Context, rest_of_line
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt

_CLOSERS = ("}", ")", "]", "end", "fi", "done", "esac")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_ENDS_LINE = re.compile(rb"[\r\n)\]}]")  # no token without one of these ends a completion of one line
_WORD = re.compile(r"\w+|[^\w\s]")  # or a sign
_REST_OF_STRING = {
    "'": re.compile(r"[^'\\\n]*(?:\\.[^'\\\n]*)*'"),
    '"': re.compile(r"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\""),
}
_TRIES = 8  # overlaps of a draft with the rest of its line that are checked; ordinary code has one or two


@dataclass(frozen=True, slots=True)
class DraftText:
    """The texts of drafts that continue one prompt."""

    tokens: ModelTokenizer
    prompt: Prompt
    context: Context

    def continuations(self, places: Sequence[Place]) -> list[tuple[Place, str]]:
        """Return what a user would see of what follows each place, where it can follow the cursor too."""
        lines = {ids: self._continuation(ids) for ids in dict.fromkeys(place.next for place in places)}
        return [(place, line) for place in places if (line := lines[place.next]) is not None]

    def _continuation(self, ids: Sequence[int]) -> str | None:
        """Return what a user would see of ids copied from elsewhere; None if they say other than what is typed.

        And if neither their line nor block, nor their file ends within them.
        """
        length = next((n for n, i in enumerate(ids) if self.tokens.ends(i)), len(ids))
        if not self.tokens.bytes_of(ids[:length]).startswith(self.prompt.healed):
            return None
        text = self.text(ids[:length])
        is_whole = length < len(ids) or find_end(text, self.context) is not None
        return visible_text(text, self.context) if is_whole else None

    def is_empty(self, ids: Sequence[int]) -> bool:
        """Whether a draft says that nothing belongs here."""
        return not self.visible(ids).strip()

    def visible(self, ids: Sequence[int]) -> str:
        """Return what a user would see of a draft."""
        return visible_text(self.text(ids), self.context)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a draft, up to the mask that stands for a line with a secret in n-gram tables."""
        return self._full_text(ids).partition(MARK)[0]

    def is_finished(self, ids: Sequence[int]) -> bool:
        """Whether the draft ends the file, its line or its block."""
        last = ids[-1]
        if self.tokens.ends(last):
            return True
        if self.context.shape != "block" and not _ENDS_LINE.search(self.tokens.pieces[last]):
            return False
        text = self._full_text(ids)
        return MARK in text or find_end(text, self.context) is not None

    def _full_text(self, ids: Sequence[int]) -> str:
        """The text right of the cursor: without what token healing took back, and without half characters."""
        text = self.tokens.bytes_of(ids)[len(self.prompt.healed) :].decode(errors="ignore")
        return normalize_line_ends(text) if "\r" in text else text


def visible_text(text: str, context: Context) -> str:
    """Return what a user would see of a draft."""
    return remove_overlap(trim_draft(text, context), context.after, context.left)


def trim_draft(text: str, context: Context) -> str:
    """Return the part of a draft that belongs to the completion, without trailing white space.

    A block that was cut off by the length limit loses its unfinished last line.
    """
    end = find_end(text, context)
    if end is None and context.shape == "block" and "\n" in text.strip():
        end = text.rindex("\n")
    return text[:end].rstrip()


def find_end(text: str, context: Context) -> int | None:
    """Return the offset at which the completion ends, or None if it may continue.

    Example: a line ends at its line break, `x + 1\\ny` at 5. A block ends where a line stands left of its body.
    """
    end = _block_end(text, context.indent) if context.shape == "block" else line_end(text)
    rest = context.rest
    again = _find_repeat(text[:end], context.left, rest) if rest else None
    return end if again is None else again


def line_end(text: str) -> int | None:
    """Return the end of the first line, or None."""
    return text.find("\n") if "\n" in text else None


def _block_end(text: str, indent: str) -> int | None:
    """Return where a line is indented less than the body, or after three blank lines; else None."""
    first, *lines = text.split("\n")
    at = len(first) + 1
    blank = 0
    for line in lines:
        content = line.strip()
        blank = 0 if content else blank + 1
        if content and len(line) - len(line.lstrip()) < len(indent):
            return _closing_end(text, at, line, content)
        if blank > 2:
            return at
        at += len(line) + 1
    return None


def _closing_end(text: str, at: int, line: str, content: str) -> int | None:
    """A line left of the body ends the block: before it, or after it if all it does is close the block."""
    if not content.startswith(_CLOSERS):
        return at
    return at + len(line) if at + len(line) < len(text) else None


def _find_repeat(text: str, left: str, rest: str) -> int | None:
    """Where a draft closes a bracket that the rest of the line closes: there, or where the rest begins in it.

    Example: `names)) ==` before `)` at 5; `x for x in y]` before `for x in xs]` at 2; `len(x)` before `)` nowhere.
    """
    spare = dict(_spare_closers(left[-MAX_LINE_REACH:], rest))
    if not any(closer in text for closer in spare):
        return None
    first = next((mark for _, mark in _lexemes(rest)), "")
    alike = _in_common(text, rest)
    opened: Counter[str] = Counter()
    at, length = None, 0  # where most of the rest is said, and how much of it
    for start, mark in _lexemes(text):
        if mark == first and not opened.total() and alike[start] > length:
            at, length = start, alike[start]
        if mark in _CLOSED_BY:
            opened[_CLOSED_BY[mark]] += 1
        elif opened[mark]:
            opened[mark] -= 1
        elif mark in spare:
            if not spare[mark]:
                return start if at is None else at
            spare[mark] -= 1
            at, length = None, 0
    return None


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
    return common_with_start([*start, None, *text], len(start) + 1 + len(text))[len(start) + 1 :]


def common_with_start(items: Sequence[object], places: int) -> list[int]:
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


def remove_overlap(text: str, after: str, left: str = "") -> str:
    """Cut off the end of a text that the document already has behind the cursor on the same line.

    Example: `len(x))` before `)` is cut to `len(x)`; `:` before `:` is cut to nothing; `info` before `or` stays.
    """
    if not (rest := rest_of_line(after)) or not text:
        return text
    last = text[-len(rest) :]
    overlaps = [len(last) - at for at, same in enumerate(_in_common(last, rest)) if at + same == len(last)]
    if overlaps:
        excess, spare = _open_brackets(text)[0], _spare_closers(left[-MAX_LINE_REACH:], rest)
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
    kept, cut = text[:-n], text[-n:]
    if splits_word(kept, cut) or splits_word(cut, rest[n:]):
        return False
    if any(number > excess[mark] for mark, number in _open_brackets(cut)[0].items()):
        return False
    return all(cut.count(quote) % 2 == 0 or text.count(quote) % 2 for quote in "\"'`")


def splits_word(first: str, second: str) -> bool:
    """Whether a word spans the end of one text and the start of the next."""
    return bool(re.search(r"\w$", first[-2:]) and re.match(r"\w", second))

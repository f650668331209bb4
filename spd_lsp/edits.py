"""Next edits: where a change that a person made twice is wanted, too. Knows neither models nor editors.

In: the open documents, each time one changes. Out: proposals, after two like edits only: the least general rewrite
that explains both is searched for. Words in which the edits differ are holes.

Example: `a.size` -> `a["size"]` and `b.width` -> `b["width"]` rewrite `.NAME` to `["NAME"]`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

_TOKEN = re.compile(r"\w+|[\r\n]|[^\S\r\n]+|[^\w\s]")
_BLANK = r"[^\S\r\n]"  # at most 80, so that the time is linear, whatever a file holds
_MAX_LINE = 2_000  # characters
_MAX_CHARS = 200  # of an edit
_MAX_LINES = 40  # of one change; more come from a program
_MAX_PLACES = 50
_KEPT = 8  # edits
_CONTEXT = 8  # tokens on each side
_MIN_CONTEXT = 2  # tokens around a place that are those around both edits
_MIN_TOKENS = 5  # of these and of what is replaced
_LINE_END = "\n"  # the context's last token at either end of a line

_Token = str | int  # an int is a hole


class Proposal(NamedTuple):
    """What to write in place of a span of a document."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """What was replaced within a line by what, at an offset in the text after it; all as tokens."""

    document: str
    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]  # before it, nearest first, then _LINE_END; without indentation
    right: tuple[str, ...]


class Session:
    """The texts of the open documents by name, such as a URI, and the edits in them.

    An edit goes on as long as the changes stay in a line.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.edited = ""  # the document that was edited last
        self._base = ""  # its text before the edit that goes on
        self._earlier: deque[Edit] = deque(maxlen=_KEPT)  # newest first

    def see(self, texts: Mapping[str, str]) -> None:
        """Take in the open documents as they are now."""
        for name, text in texts.items():
            if self.texts.get(name, text) is not text:
                self._change(name, self.texts[name], text)
        self.texts = dict(texts)

    def _change(self, name: str, before: str, after: str) -> None:
        start, old_end, new_end = _changed_span(before, after)
        if max(before.count("\n", start, old_end), after.count("\n", start, new_end)) > _MAX_LINES:
            self._earlier.clear()
            self.edited, self._base = name, after
        elif name != self.edited or not self._goes_on(before, start, old_end):
            if edit := self._newest:
                self._earlier.appendleft(edit)
            self.edited, self._base = name, before

    def _goes_on(self, text: str, start: int, end: int) -> bool:
        """Whether a change of this span of the edited document is in the line of the edit that goes on."""
        first, old_last, last = _changed_span(self._base, text)
        if "\n" in self._base[first:old_last] or "\n" in text[first:last]:
            return False
        line = text.rfind("\n", 0, first) + 1
        return line <= start and end <= text.find("\n", last) % (len(text) + 1)

    @property
    def _newest(self) -> Edit | None:
        """The edit in the line that was edited last."""
        text = self.texts.get(self.edited)
        return None if text is None else edit_between(self.edited, self._base, text)

    def proposals(self) -> list[Proposal]:
        """Where in the edited document the newest edit is wanted, too, first those below it; each place once.

        None if it takes an earlier one back, or if places between it and the earlier one were passed over.
        """
        edit = self._newest
        if edit is None or any((edit.new, edit.old) == (other.old, other.new) for other in self._earlier):
            return []
        chosen: list[Proposal] = []
        for other in self._earlier:
            found = proposals_of(edit, other, self.texts[self.edited])
            above, below = sorted((edit.start, other.start))
            if other.document == self.edited and any(above < one.start < below for one in found):
                continue
            for new in sorted(found, key=lambda one: one.start < edit.start):
                if not any(new.start <= one.end and one.start <= new.end for one in chosen):
                    chosen.append(new)
        return chosen


def edit_between(document: str, before: str, after: str) -> Edit | None:
    """The edit that turns a text into another: from the first token that differs in a line to the last one.

    None if several lines differ, if only blanks or one end of a pair of brackets do, or if it is long.
    """
    start, old_end, new_end = _changed_span(before, after)
    start = after.rfind("\n", 0, start) + 1
    tail = after.find("\n", new_end) % (len(after) + 1) - new_end
    if max(old_end, new_end) + tail - start > _MAX_LINE:
        return None
    olds, news = tokenize(before[start : old_end + tail]), tokenize(after[start : new_end + tail])
    first, old_last, last = _changed_span(olds, news)
    old, new = "".join(olds[first:old_last]), "".join(news[first:last])
    is_same = old.strip() == new.strip() or _balance(old) != _balance(new)
    if is_same or max(len(old), len(new)) > _MAX_CHARS or {"\r", "\n"} & {*old, *new}:
        return None
    at = start + sum(map(len, news[:first]))
    context = _context(news[:first][::-1]), _context(news[last:])
    return Edit(document, at, tuple(olds[first:old_last]), tuple(news[first:last]), *context)


def tokenize(text: str) -> list[str]:
    """Words, line ends, blanks and other characters. Example: `a +b` -> "a", " ", "+" and "b"."""
    return _TOKEN.findall(text)


def _changed_span(before: Sequence[str], after: Sequence[str]) -> tuple[int, int, int]:
    """Where two texts, or lists of tokens, differ: the start in both, and the end in each."""
    start = _common_length(before, after)
    most = min(len(before), len(after)) - start
    tail = _common_length(before[len(before) - most :][::-1], after[len(after) - most :][::-1])
    return start, len(before) - tail, len(after) - tail


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """How much two sequences begin with alike, found by halving: texts are long, and compared as a whole."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low


def _context(tokens: Iterable[str]) -> tuple[str, ...]:
    """The next tokens of a line, up to and with its end."""
    line = [token for token in tokens if token not in ("\r", "\n")]
    while line and line[-1].isspace():
        line.pop()
    return (*line, _LINE_END)[:_CONTEXT]


def _balance(text: str) -> list[int]:
    """How many more brackets of each kind a text opens than it closes, and whether quotes stay open."""
    brackets = [text.count(opening) - text.count(closing) for opening, closing in ("()", "[]", "{}")]
    return brackets + [text.count(quote) % 2 for quote in "'\""]


def proposals_of(first: Edit, second: Edit, text: str) -> list[Proposal]:
    """Where what two edits have in common can be done in a text, from top to bottom, unless it is done already.

    Nowhere if they are not alike, or share so little that it may match anywhere.
    """
    # 1. What both share: equal tokens, and a hole for each pair of words that differ.
    if len(first.old) != len(second.old) or len(first.new) != len(second.new):
        return []
    pairs = [*zip(first.old + first.new, second.old + second.new, strict=True)]
    holes = {pair: number for number, pair in enumerate(pairs) if pair[0] != pair[1]}
    tokens = [holes.get(pair, pair[0]) for pair in pairs]
    old, new = tokens[: len(first.old)], tokens[len(first.old) :]
    left = _shared(first.left, second.left, holes)[::-1]
    right = _shared(first.right, second.right, holes)
    # 2. Whether that is enough. A word that differs is moved, not replaced or made up.
    context = [token for token in (*left, *right) if not _is_blank(token)]
    visible = [*context, *(token for token in old if not _is_blank(token))]
    is_kept = {*holes.values()} <= {*new} & {*visible} and all(map(_is_word, sum(holes, ())))
    has_word = any(isinstance(token, int) or _is_word(token) for token in visible)
    if not is_kept or len(context) < _MIN_CONTEXT or len(visible) < _MIN_TOKENS or not has_word:
        return []
    # 3. The places.
    found = []
    for match in islice(_pattern(left, old, right).finditer(text), _MAX_PLACES):
        start, end = match.span("site")
        written = "".join(match[f"h{token}"] if isinstance(token, int) else token for token in new)
        replaced = text[start:end]
        places = [at for at in range(min(len(written), start) + 1) if written.startswith(replaced, at)]
        if not any(text.startswith(written, start - at) for at in places):
            found.append(Proposal(start, end, written))
    return found


def _shared(first: Sequence[str], second: Sequence[str], holes: Mapping[tuple[str, str], int]) -> list[_Token]:
    """The tokens with which two contexts begin alike."""
    found: list[_Token] = []
    for pair in zip(first, second, strict=False):
        if pair[0] != pair[1] and pair not in holes and not all(map(_is_blank, pair)):
            break
        found.append(holes.get(pair, pair[0]))
    return found


def _is_blank(token: _Token) -> bool:
    return isinstance(token, str) and token != _LINE_END and token.isspace()


def _is_word(token: str) -> bool:
    """Whether a token is a name, a number or a keyword."""
    return token[:1].isalnum() or token[:1] == "_"


def _pattern(left: Sequence[_Token], old: Sequence[_Token], right: Sequence[_Token]) -> re.Pattern[str]:
    """A pattern of the places to change; blanks may be others than in the edits."""
    seen: set[_Token] = set()

    def part(token: _Token) -> str:
        if isinstance(token, int):
            is_first = token not in seen
            seen.add(token)
            return rf"\b(?P<h{token}>\w+)\b" if is_first else rf"\b(?P=h{token})\b"
        if token.isspace():
            return rf"{_BLANK}{{1,80}}"
        return rf"\b{token}\b" if _is_word(token) else re.escape(token)

    before = "".join(rf"^{_BLANK}{{0,80}}" if token == _LINE_END else part(token) for token in left)
    site = "".join(map(part, old))
    after = "".join(rf"{_BLANK}{{0,80}}\r?$" if token == _LINE_END else part(token) for token in right)
    return re.compile(f"{before}(?P<site>{site})(?={after})", re.MULTILINE)

"""Which part of a draft already stands behind the cursor: delimiters closed twice, repeated text.

In: a draft, and what the document leaves open at the cursor and closes below it. Out: where the draft ends, and
whether it can stand there.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice, takewhile

from spd_lsp.completion.syntax.delimiters import Delimiter, Scan, scan

_MAX_READ = 400_000  # characters on each side of the cursor; what is further away decides nothing here
_MAX_REPEATED = 400  # characters that are looked for behind the cursor
_MAX_BEGUN = 64  # characters of a word at the cursor
_WORD = f"{string.ascii_letters}{string.digits}_"
_QUOTES = "\"'`"
_LEXEME = re.compile(r"\w+|[^\w\s]")

_scan_far = lru_cache(8)(scan)  # above and below the cursor's line nothing changes while one types
_scan_near = lru_cache(256)(scan)  # drafts, which are read several times


@dataclass(frozen=True)
class Surroundings:
    """What stands around a cursor, as far as it says which delimiters a draft may close."""

    language: str
    above: str  # the lines above the cursor's
    left: str  # of the cursor, on its line
    rest: str  # of the cursor's line
    below: str  # the lines below it

    @classmethod
    def at(cls, source: str, cursor: int, language: str | None) -> Surroundings:
        """Return what stands around an offset (in code points) in a document."""
        start = source.rfind("\n", 0, cursor) + 1
        end = source.find("\n", cursor) % (len(source) + 1)
        above = source[:start] if start <= _MAX_READ else source[source.find("\n", start - _MAX_READ) + 1 : start]
        return cls(language or "", above, source[start:cursor], source[cursor:end], source[end : end + _MAX_READ])

    @cached_property
    def indent(self) -> int:
        """Characters of white space at the start of the cursor's line."""
        return len(self.left) - len(self.left.lstrip())

    @cached_property
    def opened(self) -> tuple[Delimiter, ...]:
        """What is open at the cursor, innermost last."""
        return self._opened_by(self.left)

    def _opened_by(self, left: str) -> tuple[Delimiter, ...]:
        return scan(left, self.language, _scan_far(self.above, self.language).open, self.indent).open

    @property
    def literal(self) -> str:
        """What the cursor stands in that is no code: `string`, `comment` or nothing."""
        return self.opened[-1].kind if self.opened and self.opened[-1].is_text else ""

    def read(self, text: str) -> Scan:
        """Scan a draft at the cursor, together with the word or quotes that it continues."""
        begun = self._begun(text[:1])
        opened = self._opened_by(self.left[: -len(begun)]) if begun else self.opened
        found = _scan_near(begun + text, self.language, opened, self.indent)
        closers = tuple(one._replace(at=max(0, one.at - len(begun))) for one in found.closers)
        return replace(found, closers=closers)

    def _begun(self, first: str) -> str:
        """Return the word or quotes at the cursor that a draft with this first character continues."""
        if not first or first not in _WORD + _QUOTES:
            return ""
        left = self.left[-_MAX_BEGUN:]
        begun = left[len(left.rstrip(_WORD if first in _WORD else first)) :]
        return "" if first in _QUOTES and len(begun) > 2 else begun

    @cached_property
    def closable(self) -> int:
        """How many of the innermost open delimiters a draft may close, since nothing behind the cursor does."""
        opened = self.opened
        skipped = 0
        if opened and opened[-1].is_text:
            if self._is_literal_closed():
                return 0
            opened = opened[:-1]
            skipped = 1
        return skipped + self._count_unclosed(opened)

    def _is_literal_closed(self) -> bool:
        """Whether what follows reads better as going on within the literal at the cursor than as code."""
        literal = self.opened[-1]
        text = self.rest + self.below if literal.spans_lines else self.rest
        if literal.kind == "comment":
            end = text.find(literal.closer)
            return end >= 0 and literal.closer[::-1] not in text[:end]
        inside = scan(text, self.language, self.opened)
        outside = scan(text, self.language, self.opened[:-1])
        return _text_errors(inside) <= _text_errors(outside) and literal.closer in text

    def _count_unclosed(self, opened: tuple[Delimiter, ...]) -> int:
        """Return how many of the innermost delimiters around code are not closed behind the cursor.

        All are closed where the document is balanced. Else the first closer behind the cursor tells which one it
        belongs to: by its text and, where it begins a line, by that line's indentation.
        """
        rest = scan(self.rest, self.language, opened, self.indent).closers
        below = _scan_far(self.below, self.language).closers
        waiting = [one.closer for one in reversed(opened)]
        found = [one.text for one in (*rest, *below)]
        if found[: len(waiting)] == waiting:
            return 0
        unclosed = max(0, len(waiting) - len(found))
        if rest:
            inner = waiting[: len(opened) - len(_scan_far(self.above, self.language).open)]
            also = [one for one in islice(below, 1) if one.indent is not None and one.indent >= self.indent]
            return min(unclosed, _place_of(inner, [one.text for one in (*rest, *also)]))
        if not below:
            return len(waiting)
        first = below[0]
        for skipped, one in enumerate(reversed(opened)):
            if one.closer == first.text and (first.indent is None or one.indent <= first.indent):
                return skipped
        return len(waiting)

    def end_of(self, text: str) -> int | None:
        """Return where a draft repeats what stands behind the cursor, such as a closing bracket; None if nowhere.

        Example: `names)) ==` before `)` at 5; `x for x in y]` before `for x in z]` at 2; `len(x)` nowhere.
        """
        end = next((one.at for one in self.read(text).closers if one.closed > self.closable), None)
        return None if end is None else self._repeat(text[:end], end)

    def _repeat(self, text: str, end: int) -> int:
        """Return where a draft repeats the start of the rest of the line, or else of the next line; or its end."""
        rest = self.rest.strip()[:_MAX_REPEATED]
        following = rest or self.below.lstrip()[:_MAX_REPEATED]
        if not (first := _LEXEME.match(following)) or not (first[0].isalnum() or re.search(r"\w", rest)):
            return end
        places = [mark.start() for mark in _LEXEME.finditer(text[:_MAX_REPEATED]) if mark[0] == first[0]]
        alike = {
            at: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text[at:], following, strict=False)))
            for at in places
            if self.read(text[:at]).open == self.opened and (rest or following.startswith(text[at:]))
        }
        return max(alike, key=lambda at: alike[at], default=end)

    def without_overlap(self, text: str) -> str:
        """A draft without its end if what follows the cursor begins so: the rest of the line, or the next lines.

        Example: `:` before `:` is cut to nothing; `info` before `or` stays.
        """
        rest = self.rest.strip()
        again = text.strip().removeprefix(rest)
        if re.search(r"\w", rest) and again != text.strip() and not splits_word(rest, again):
            return ""
        for n in range(min(len(text), len(rest), _MAX_REPEATED), 0, -1):
            kept = text[:-n]
            if (
                rest.startswith(text[-n:])
                and not splits_word(kept, text[-n:])
                and not splits_word(text[-n:], rest[n:])
                and self.read(kept).open == self.opened == self.read(text).open
            ):
                return kept.rstrip() if self.rest[0].isspace() else kept
        return text if rest else self._without_next_lines(text)

    def _without_next_lines(self, text: str) -> str:
        """A draft without the last of its lines that are the next lines of the document."""
        lines = (self.left + text).split("\n")
        following = [line.rstrip() for line in islice(filter(str.strip, self.below.split("\n")), len(lines))]
        for n in range(min(len(lines) - 1, len(following)), 0, -1):
            if [line.rstrip() for line in lines[-n:]] == following[:n]:
                return "\n".join(lines[:-n])[len(self.left) :].rstrip()
        return text

    def left_open(self, text: str) -> tuple[Delimiter, ...]:
        """What a draft opens and does not close."""
        found = self.read(text)
        closed = found.closers[-1].closed if found.closers else 0
        return found.open[max(0, len(self.opened) - closed) :]

    def closed(self, text: str) -> str:
        """A draft with an end for all code and strings that it opens, and a body for a block of Python."""
        opened = self.left_open(text)
        if any(one.kind == "comment" for one in opened):
            return text
        ends = "".join(one.closer for one in reversed(opened))
        if ends:
            text = text.rstrip().removesuffix(",")
        return text + ends + (" pass" if self.language == "python" and text.rstrip().endswith(":") else "")

    def can_stand(self, text: str) -> bool:
        """Whether neither a draft nor the rest of the cursor's line behind it ends a line within a string."""
        found = self.read(text)
        own = self.left_open(text)
        strings = [one for one in own if one.kind == "string"]
        may_go_on = (one.spans_lines and (len(one.closer) > 1 or text.endswith(one.closer)) for one in strings)
        if found.is_broken or not all(may_go_on):
            return False
        if not (rest := self.rest.strip()):
            return True
        if own:
            return False
        here, without = (_scan_near(rest, self.language, one, self.indent) for one in (found.open, self.opened))
        return _text_errors(here) <= _text_errors(without)


def _place_of(waiting: Sequence[str], closers: Sequence[str]) -> int:
    """How many of the innermost that wait are left over by closers that belong to the outermost that they can."""
    at = len(waiting)
    for closer in reversed(closers):
        at = next((n for n in reversed(range(at)) if waiting[n] == closer), 0)
    return at


def _text_errors(found: Scan) -> int:
    """How often a text ends within a string or comment, and whether it is broken before."""
    return found.is_broken + sum(one.is_text for one in found.open)


def splits_word(first: str, second: str) -> bool:
    """Whether a word spans the end of one text and the start of the next."""
    return bool(re.search(r"\w$", first[-2:]) and re.match(r"\w", second))

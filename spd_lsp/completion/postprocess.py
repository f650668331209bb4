"""Drafts to completions: where a draft ends, what of it repeats the document, which drafts are the same.

In: token ids of drafts and their scores. Out: completions, best first. Knows no LSP.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.masking import MARK
from ngram_builders.table.suffix_array import Place
from spd_lsp.completion.context import MAX_LINE_REACH, MAX_PARSED_LENGTH, Context, rest_of_line
from spd_lsp.completion.languages import LANGUAGES
from spd_lsp.completion.parsing import request_could_follow
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.copies import Continuations, Match
from spd_lsp.printable import HIDDEN_CHARACTERS

_CLOSERS = ("}", ")", "]", "end", "fi", "done", "esac")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_ENDS_LINE = re.compile(rb"[\r\n)\]}]")  # no token without one of these ends a completion of one line
_WORD = re.compile(r"\w+|[^\w\s]")  # or a sign
_REST_OF_STRING = {
    "'": re.compile(r"[^'\\\n]*(?:\\.[^'\\\n]*)*'"),
    '"': re.compile(r"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\""),
}
_LIKELY_DRAFT = 0.1  # probability from which a draft keeps its place before names
_LIKELY_NAME = 0.3  # and that of a name before which even the best draft gives way
_NAME_WORTH = 0.1  # of a name against a draft as likely: that is the rest of the line, and more certain
_MAX_COPIES = 2
_TRIES = 8  # overlaps of a draft with the rest of its line that are checked; ordinary code has one or two


@dataclass(frozen=True, slots=True)
class Completion:
    """A text to insert at the cursor; `probability` is its ranking score, or calibrated."""

    text: str
    probability: float
    ends: bool = True  # whether its line or block ends with it; else it was cut off, and more may follow
    is_name: bool = False  # whether it is no draft, but the rest of a name that was begun
    is_copy: bool = False  # whether it is no draft, but copied from elsewhere in the user's code
    match: Match | None = None  # None: it stands nowhere behind what is before the cursor


@dataclass(frozen=True, slots=True)
class DraftText:
    """The texts of drafts that continue one prompt."""

    tokens: ModelTokenizer
    prompt: Prompt
    context: Context

    def rank(self, drafts: Iterable[tuple[Sequence[int], float]]) -> list[Completion]:
        """Return the completions of drafts and their scores, best first."""
        return rank_completions([(self.text(ids), score) for ids, score in drafts], self.context)

    def with_copies(self, drafts: Sequence[Completion], places: Sequence[Place]) -> list[Completion]:
        """Return drafts and what stands behind the same text elsewhere, best first."""
        lines = {ids: self.continuation(ids) for ids in dict.fromkeys(place.next for place in places)}
        found = [(place, line) for place in places if (line := lines[place.next]) is not None]
        return with_copies(drafts, Continuations(found), self.context)

    def continuation(self, ids: Sequence[int]) -> str | None:
        """Return what a user would see of ids copied from elsewhere; None if they say other than what is typed.

        And if neither their line nor block, nor their file ends within them.
        """
        length = next((n for n, i in enumerate(ids) if self.tokens.ends(i)), len(ids))
        if not self.tokens.bytes_of(ids[:length]).startswith(self.prompt.healed):
            return None
        text = self.text(ids[:length])
        is_whole = length < len(ids) or find_end(text, self.context) is not None
        return visible_text(text, self.context) if is_whole else None

    def with_names(self, drafts: Sequence[Completion], names: Mapping[str, float]) -> list[Completion]:
        """Return drafts and names, best first."""
        return with_names(drafts, names, self.context.left)

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


def rank_completions(drafts: Iterable[tuple[str, float]], context: Context) -> list[Completion]:
    """Return the completions of texts and their log-scores, best first, each text once.

    Texts with invisible or control characters are dropped, those that repeat the line above or below, and those
    that would become one word with what stands right of the cursor.
    """
    completions: dict[str, Completion] = {}
    for draft, score in drafts:
        text = visible_text(draft, context)
        if text not in completions and _can_be_offered(text, context):
            ends = find_end(draft, context) is not None
            completions[text] = Completion(text, math.exp(min(score, 0.0)), ends)
    return list(completions.values())


def _can_be_offered(text: str, context: Context) -> bool:
    """Whether a text that is trimmed says something, and something new."""
    if not text.strip() or HIDDEN_CHARACTERS.search(text) or _is_endless(text):
        return False
    return not _repeats(context.neighbours, context, text) and not _splits_word(text, context.after)


def with_copies(drafts: Sequence[Completion], elsewhere: Continuations, context: Context) -> list[Completion]:
    """Return drafts and copies, best first: a copy of a long match on which most places agree, then drafts.

    A draft that says the same gives way to it; other copies come last.
    """
    possible = ((text, match) for text, match in elsewhere.copies().items() if _can_be_offered(text, context))
    found = islice(possible, _MAX_COPIES)
    copies = [Completion(text, match.probability, is_copy=True, match=match) for text, match in found]
    first = [copy for copy in copies[:1] if copy.match and copy.match.is_reliable]
    known = [replace(draft, match=elsewhere.match(draft.text)) for draft in drafts]
    by_text: dict[str, Completion] = {}
    for completion in (*first, *known, *copies):
        by_text.setdefault(completion.text, completion)
    return list(by_text.values())


def with_names(drafts: Sequence[Completion], names: Mapping[str, float], left: str) -> list[Completion]:
    """Return drafts and names, best first; the word at the end of `left` begins each of the names.

    A draft makes room for much likelier names if its first word is no name, or that of a better draft and it is
    unlikely.
    Example: `co` with drafts `mpute(x)`, `mpute(y)` and the name `count` -> `mpute(x)`, `unt`, `mpute(y)`.
    """
    if not names:
        return list(drafts)
    begun = re.split(r"\W", left)[-1]
    is_certain = max(names.values()) >= _LIKELY_NAME
    first: list[Completion] = []
    last: list[Completion] = []
    words: set[str] = set()
    for draft in drafts:
        word = begun + re.split(r"\W", draft.text, maxsplit=1)[0]
        is_unlikely = draft.probability < _LIKELY_DRAFT
        if word in names:
            is_kept = word not in words or not is_unlikely
        else:
            is_kept = not first and not (is_unlikely and is_certain)
        (first if is_kept else last).append(draft)
        words.add(word if is_kept else "")
    rest = [
        Completion(name[len(begun) :], probability, ends=False, is_name=True)
        for name, probability in names.items()
        if name not in words
    ]
    by_worth = sorted([*rest, *last], key=lambda one: -one.probability * (_NAME_WORTH if one.is_name else 1))
    return [*first, *by_worth]


def can_be_code(
    completions: Sequence[Completion], source: str, cursor: int, language: str | None
) -> list[Completion]:
    """Return the completions after which the language's parser finds no error that was not there before."""
    known = LANGUAGES.get(language or "")
    if known is None or not completions or len(source) > MAX_PARSED_LENGTH:
        return list(completions)
    verdicts = request_could_follow(known, source, cursor, [completion.text for completion in completions])
    return [completion for completion, verdict in zip(completions, verdicts, strict=True) if verdict]


def _repeats(lines: Collection[str], context: Context, text: str) -> bool:
    """Whether a text makes the cursor's line the same as one of these; a line of mere signs may be repeated."""
    line = (context.left + text.partition("\n")[0] + context.rest).strip()
    return line in lines and re.search(r"\w", line) is not None


def _is_endless(text: str) -> bool:
    """Whether a text ends in a short string repeated six times or a long one four times: a loop of the model."""
    backwards = text[::-1]
    again = _like_start(backwards, len(text) // 4 + 1)
    return any(again[n] >= n * (5 if n < 10 else 3) for n in range(3, len(again)))


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
    return _like_start([*start, None, *text], len(start) + 1 + len(text))[len(start) + 1 :]


def _like_start(items: Sequence[object], places: int) -> list[int]:
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
    if _splits_word(kept, cut) or _splits_word(cut, rest[n:]):
        return False
    if any(number > excess[mark] for mark, number in _open_brackets(cut)[0].items()):
        return False
    return all(cut.count(quote) % 2 == 0 or text.count(quote) % 2 for quote in "\"'`")


def _splits_word(first: str, second: str) -> bool:
    """Whether a word spans the end of one text and the start of the next."""
    return bool(re.search(r"\w$", first[-2:]) and re.match(r"\w", second))

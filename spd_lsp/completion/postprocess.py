"""Drafts to completions: where a draft ends, and which drafts, beginnings of drafts, copies and names are offered.

In: token ids of drafts and their scores, places where the text before the cursor stands in the user's code, and
names. Out: completions, best first. Knows no LSP.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.masking import MARK
from ngram_builders.table.suffix_array import Place
from spd_lsp.completion.calibration import (
    Calibration,
    Match,
    are_probabilities,
    calibrate,
    calibrate_drafts,
    probabilities_behind,
)
from spd_lsp.completion.context import MAX_PARSED_LENGTH, Context
from spd_lsp.completion.languages import LANGUAGES
from spd_lsp.completion.overlap import find_repeat, remove_overlap, splits_word
from spd_lsp.completion.parsing import request_could_follow
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.superposed import Draft
from spd_lsp.ngrams.open_documents import likely_words
from spd_lsp.printable import HIDDEN_CHARACTERS
from spd_lsp.settings import Settings

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_CLOSERS = ("}", ")", "]", "end", "fi", "done", "esac")
_INDENTED_LINE = re.compile(rb"\n([ \t]*)(?=\S)")
_ENDS_LINE = re.compile(rb"[\r\n)\]}]")  # no token without one of these ends a completion of one line
_MAX_NAMES = 16  # no more are ever offered
# Keystrokes that it is worth that the whole line is among those offered, beyond what it saves; and inside words,
# where it has mostly been offered before and passed by; and that a word is, where names go on with it.
_LINE_WORTH, _PASSED_LINE_WORTH, _WORD_WORTH = 100, 20, 30
_MAX_COPIES = 6
_MAX_COMPARED = 64  # places whose texts may become copies
# Behind drafts a copy is right less often than its match alone says: .29 times as often for 185 in five packages,
# .25 for 146 in five others.
_LATER_COPY = 0.3
# The last place is a copy's that is this much as likely as the draft there: as before drafts had a say in that.
_LAST_PLACE = 0.3


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
        written = self._indented(self.tokens.bytes_of(ids[:length]))
        if not written.startswith(self.prompt.begun):
            return None
        text = _decoded(written[len(self.prompt.begun) :]).partition(MARK)[0]
        is_whole = length < len(ids) or find_end(text, self.context) is not None
        return visible_text(text, self.context) if is_whole else None

    def _indented(self, written: bytes) -> bytes:
        """A copy that begins behind the end of a line, indented as the cursor's line is."""
        begun, left = self.prompt.begun, self.context.left.encode()
        if not left.isspace() or not begun.isspace() or not begun.endswith(left):
            return written
        lines = written if b"\n" in begun else b"\n" + written  # some tokenizers end a token at a line's end
        first = _INDENTED_LINE.search(lines)
        if first is None or lines[: first.start()].strip():
            return written

        def moved(line: re.Match[bytes]) -> bytes:
            """Example: from four blanks to eight -> four more, of a line with two: two less than eight."""
            deeper = len(line[1]) - len(first[1])
            return b"\n" + left[: len(left) + deeper] + line[1][len(first[1]) :]

        return begun + _INDENTED_LINE.sub(moved, lines[first.end() :])

    def beginnings(
        self, begun: Sequence[Draft], drafts: Sequence[Completion], by: Calibration
    ) -> dict[str, float]:
        """Return what drafts begin with, up to the end of a word, and how probable each beginning is.

        It is at least as probable as the first draft, if that begins so, and at most as probable as that leaves.
        """
        ends = [(one.text, mark.end()) for one in drafts for mark in _WORD_OR_SIGN.finditer(one.text)]
        possible = {text[:end] for text, end in ends if end < len(text)}
        found: dict[str, float] = {}
        for draft in begun:
            text = self.text(draft.ids).rstrip()
            if text in possible and _can_be_offered(text, self.context):
                first = drafts[0].probability
                begins_first = drafts[0].text.startswith(text)
                p = calibrate(math.exp(min(draft.score, 0.0)), by, first=begins_first)
                found[text] = max(found.get(text, 0.0), max(p, first) if begins_first else min(p, 1 - first))
        return found

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
        return _decoded(self.tokens.bytes_of(ids)[len(self.prompt.spelling.healed) :])


def _decoded(written: bytes) -> str:
    """A text without half characters."""
    text = written.decode(errors="ignore")
    return normalize_line_ends(text) if "\r" in text else text


def visible_text(text: str, context: Context) -> str:
    """Return what a user would see of a draft."""
    text = trim_draft(text, context)
    return remove_overlap(text, context.after, context.left) if context.rest else text


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
    again = find_repeat(text[:end], context.left, rest) if rest else None
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
class _Continuations:
    """How the text before the cursor goes on where it stands elsewhere, the longest matches first."""

    found: Sequence[tuple[Place, str]]

    def match(self, text: str) -> Match | None:
        """How a draft stands elsewhere; None if it does not."""
        length = next((place.length for place, line in self.found if line == text), 0)
        alike = [(place, line) for place, line in self.found if length and place.length >= length]
        agreeing = [place for place, line in alike if line == text]
        if not agreeing:
            return None
        return Match(length, len(agreeing), len(alike), len({place.document for place in agreeing}))

    def copies(self) -> dict[str, Match]:
        """The texts, best first: of the longest match, the most frequent first, then of shorter ones."""
        texts = dict.fromkeys(text for _, text in self.found[:_MAX_COMPARED])
        matches = {text: match for text in texts if (match := self.match(text))}
        return dict(sorted(matches.items(), key=lambda item: (-item[1].length, -item[1].count)))


def rank_completions(drafts: Iterable[tuple[str, float]], context: Context) -> list[Completion]:
    """Return the completions of texts and their log-scores, best first, each text once.

    Texts with invisible or control characters are dropped, those that repeat the line above or below, those that
    would become one word with what stands right of the cursor, and those that say a word twice.
    """
    completions: dict[str, Completion] = {}
    for draft, score in drafts:
        text = visible_text(draft, context)
        is_new = text not in completions and not _says_a_word_again(text, context.left)
        if is_new and _can_be_offered(text, context):
            ends = find_end(draft, context) is not None
            completions[text] = Completion(text, math.exp(min(score, 0.0)), ends)
    return list(completions.values())


def _can_be_offered(text: str, context: Context) -> bool:
    """Whether a text that is trimmed says something, and something new."""
    if not text.strip() or HIDDEN_CHARACTERS.search(text) or _is_endless(text):
        return False
    if context.rest and splits_word(text, context.after):
        return False
    return not _repeats(context.neighbours, context, text)


def _repeats(lines: Collection[str], context: Context, text: str) -> bool:
    """Whether a text makes the cursor's line the same as one of these; a line of mere signs may be repeated."""
    line = (context.left + text.partition("\n")[0] + context.rest).strip()
    return line in lines and re.search(r"\w", line) is not None


def _is_endless(text: str) -> bool:
    """Whether a text ends in a short string repeated six times or a long one four times: a loop of the model."""
    return any(
        text.endswith(text[-n:], 0, -n) and text.endswith(text[-n:] * (6 if n < 10 else 4))
        for n in range(3, len(text) // 4 + 1)
    )


def _says_a_word_again(text: str, left: str) -> bool:
    """Whether a text, behind what is left of it, has a word like `RegistryRegistry`: 40 in 6.7 million of code."""
    begun = re.split(r"\W", left)[-1] if re.match(r"\w", text) else ""
    words = re.findall(r"\w{8,}", begun + text)
    return any(4 <= (word + word).find(word, 1) < len(word) for word in words)  # not `strstr`, nor `00000000`


def with_copies(
    drafts: Sequence[Completion],
    found: Sequence[tuple[Place, str]],
    context: Context,
    most: int,
    by: Calibration,
) -> list[Completion]:
    """Return drafts and copies, best first: a copy of a long match on which most places agree, then drafts.

    It gives way to a likelier draft unless its match is very long. Outside of words the last of `most` places is
    that of the likeliest other copy, unless the draft there is much likelier. A draft that says the same gives way
    to a copy, and what it says counts for that; other copies come last.
    """
    elsewhere = _Continuations(found)
    possible = ((text, match) for text, match in elsewhere.copies().items() if _can_be_offered(text, context))
    written = {draft.text: draft.probability for draft in drafts}
    copies = [
        Completion(text, match.probability(written.get(text, 0.0)), is_copy=True, match=match)
        for text, match in islice(possible, _MAX_COPIES)
    ]
    best_draft = calibrate(drafts[0].probability, by, first=True) if drafts else 0.0
    first = [
        copy
        for copy in copies[:1]
        if copy.match and copy.match.is_reliable and (copy.match.is_long or copy.probability > best_draft)
    ]
    matched = [replace(draft, match=elsewhere.match(draft.text)) for draft in drafts]
    best = [*first, *(draft for draft in matched if draft.text not in {copy.text for copy in first})]
    kept, later = best[: max(most - 1, 1)], best[max(most - 1, 1) :]
    shown = {one.text for one in kept}
    others = sorted((copy for copy in copies if copy.text not in shown), key=lambda copy: -copy.probability)
    is_free = bool(later and others) and not re.search(r"\w$", context.left)
    is_likely = is_free and others[0].probability > _LAST_PLACE * calibrate(later[0].probability, by, first=False)
    by_text: dict[str, Completion] = {}
    for completion in (*kept, *others[:is_likely], *later, *others):
        by_text.setdefault(completion.text, completion)
    return list(by_text.values())


@dataclass(frozen=True, slots=True)
class _Worth:
    """What it is worth to offer a completion, in keystrokes."""

    begun: str  # the word at the cursor, as far as it is written
    likely: Mapping[str, float]  # how likely each word is, where names go on with it
    lines: Mapping[str, float]  # how likely each text is all that is missing of its line

    def added(self, one: Completion, better: Sequence[Completion]) -> float:
        """What a completion adds to better ones, in the mean; a step down the list takes one keystroke."""
        accepted = max((len(other.text) for other in better if one.text.startswith(other.text)), default=0)
        saved = max(0, len(one.text) - max(accepted, 1) - len(better))
        continued = sum(other.probability for other in better if other.text.startswith(one.text))
        line, word = self.lines.get(one.text, 0.0), _next_word(self.begun, one)
        is_new = word not in (_next_word(self.begun, other) for other in better)
        worth = line * (_PASSED_LINE_WORTH if self.begun else _LINE_WORTH)
        worth += is_new * self.likely.get(word, 0.0) * _WORD_WORTH
        return max(line, one.probability - continued) * saved + worth


def _next_word(begun: str, one: Completion) -> str:
    """The word that a completion goes on with."""
    return begun + re.split(r"\W", one.text, maxsplit=1)[0]


def choose_completions(
    drafts: Sequence[Completion],
    beginnings: Mapping[str, float],
    names: Mapping[str, float],
    left: str,
    most: int,
    said: Sequence[Completion] = (),
) -> list[Completion]:
    """Return `most` of drafts, beginnings of drafts and names, best first; a draft or name is first.

    Each place goes to what adds most: the keystrokes that it saves if it is right, and what a line and a word are
    worth. What a better one begins with is accepted already. The word at the end of `left` begins each name.
    `said`: all drafts, if these are not all.
    Example: `co` with drafts `mpute(x)` .4, `mpute(y)` .04, the beginning `mpute(` .8 and the name `count` .6
    -> `mpute(x)`, `unt`, `mpute(`.
    """
    if not beginnings and not names:
        return list(drafts[:most])
    begun = re.split(r"\W", left)[-1]
    said_words = [(_next_word(begun, one), one.probability) for one in said or drafts]
    likely = likely_words(names, said_words) if names else {}
    worth = _Worth(begun, likely, {one.text: one.probability for one in drafts if one.ends})
    words = islice((word for word in likely if word in names), _MAX_NAMES)
    bare = [Completion(word[len(begun) :], likely[word], ends=False, is_name=True) for word in words]
    rest = {one.text: one for one in drafts}
    for text, p in beginnings.items():
        rest[text] = replace(rest.get(text, Completion(text, p)), probability=p, ends=False)
    rest = {one.text: one for one in bare} | rest | {one.text: one for one in drafts[:1]}
    best: list[Completion] = []
    while rest and len(best) < most:
        possible = rest.values() if best else [one for one in rest.values() if one.is_name or one in drafts[:1]]
        best.append(max(possible, key=lambda one: worth.added(one, best)))
        del rest[best[-1].text]
    return best


def can_be_code(
    completions: Sequence[Completion], source: str, cursor: int, language: str | None, most: int
) -> list[Completion]:
    """Return the first completions, `most` of them, after which the language's parser finds no new error."""
    known = LANGUAGES.get(language or "")
    if known is None or not completions or len(source) > MAX_PARSED_LENGTH:
        return list(completions[:most])
    verdicts = request_could_follow(known, source, cursor, [one.text for one in completions], most)
    return [completion for completion, verdict in zip(completions, verdicts, strict=True) if verdict]


def calibrated(completions: Sequence[Completion], settings: Settings, by: Calibration) -> list[Completion]:
    """Return drafts and copies, best first, with calibrated probabilities where scores are probabilities."""
    if not are_probabilities(settings):
        return list(completions)
    drafts = [one.probability for one in completions if not one.is_copy]
    probabilities = calibrate_drafts(drafts, by) if drafts else []
    if completions and completions[0].is_copy:
        probabilities = probabilities_behind(completions[0].probability, probabilities)
    others = iter(probabilities)
    return [
        replace(one, probability=one.probability * (_LATER_COPY if place else 1) if one.is_copy else next(others))
        for place, one in enumerate(completions)
    ]

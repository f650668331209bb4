"""Training documents: a source file goes in, token ids come out, plain or with a gap to fill in.

A gap is written suffix first: `<|suffix|> S <|prefix|> P M <|endoftext|>`. P and M are one text, tokenised
jointly, because at completion time the prompt ends with P and the model simply goes on. It knows no models.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import Tokenizer

from spd_lsp.training.tokenizer import END, PREFIX, SPECIAL, SUFFIX

END_ID, SUFFIX_ID, PREFIX_ID = (SPECIAL.index(token) for token in (END, SUFFIX, PREFIX))
SUFFIX_TOKENS = 256  # what the model is shown of the text after the cursor
_SUFFIX_CHARACTERS = 1_600  # enough for SUFFIX_TOKENS: code has about four characters a token
# The prefix has no mark at its end, so each of its lines teaches the model that text goes on. When it is asked, it
# stands behind the prefix, where every other line may be the last: ends are weighed up to make good for that.
END_WEIGHT = 10.0
_STRETCH = (400, 3_400)  # characters around one gap, so that most documents fit in a context of 1,024 tokens
# No gap ends inside a line whose rest is gone: where a suffix begins with a newline, an end is the end of a line.
_CUT_SHARES = {"rest": 0.5, "bracket": 0.1, "lines": 0.2, "part": 0.2}
BRACKETS = {"(": ")", "[": "]", "{": "}"}
_LONGEST_BRACKET = 300  # characters
# A comment that a file begins with: `#` before a word or alone, so that `#include` is none.
_FIRST_COMMENT = re.compile(
    r"/\*.*?\*/|(?://|#(?=[ \n!#]))[^\n]*(?:\n[ \t]*(?://|#(?=[ \n!#]))[^\n]*)*", re.DOTALL
)
_ABOUT_RIGHTS = re.compile(r"copyright|licen[cs]e|SPDX-|all rights reserved", re.IGNORECASE)
_JOINT = re.compile(r"\w+|[^\w\s]+|\s+")


@dataclass(frozen=True, slots=True)
class Gap:
    """A text in three: before + middle + after is the text itself."""

    before: str
    middle: str
    after: str


@dataclass(frozen=True, slots=True)
class TrainingDocument:
    """Token ids; those from `middle` on continue the text at the gap (0: the whole document counts)."""

    ids: list[int]
    middle: int = 0


def cut_gap(text: str, rng: random.Random) -> Gap:
    """Cut a middle out of text: the rest of a line or of a bracket, one to six lines, or a part of a line."""
    kind = rng.choices(list(_CUT_SHARES), list(_CUT_SHARES.values()))[0]
    start, end = _CUTS[kind](text, rng)
    return Gap(text[:start], text[start:end], text[end:])


def rest_of_line(text: str, rng: random.Random) -> tuple[int, int]:
    """From a random place behind a line's indentation to its end; the newline belongs to the suffix."""
    start, end = _pick_line(text, rng)
    first = start + indentation(text[start:end])
    return rng.randint(first, max(first, end - 1)), end


def some_lines(text: str, rng: random.Random) -> tuple[int, int]:
    """One to six lines, from before or behind the first one's indentation to the last one's end."""
    start, end = _pick_line(text, rng)
    start += rng.choice((0, indentation(text[start:end])))
    for _ in range(rng.randint(0, 5)):
        following = text.find("\n", end + 1)
        end = following if following >= 0 else len(text)
    return start, end


def part_of_line(text: str, rng: random.Random) -> tuple[int, int]:
    """From a random place behind a line's indentation to a later joint of the line, its end at the latest."""
    start, end = rest_of_line(text, rng)
    joints = [match.end() for match in _JOINT.finditer(text, start, end)]
    return start, rng.choice(joints) if joints else end


def rest_of_bracket(text: str, rng: random.Random) -> tuple[int, int]:
    """From a random place in a bracket to what closes it, which belongs to the suffix; else the rest of a line."""
    start, end = _pick_line(text, rng)
    opening = [place for place in range(start, end) if text[place] in BRACKETS]
    closing = _closes(text, rng.choice(opening)) if opening else 0
    if not closing:
        return rest_of_line(text, rng)
    opened = max(place for place in opening if _closes(text, place) == closing)
    return rng.randint(opened + 1, closing), closing


def _closes(text: str, opening: int) -> int:
    """Where the bracket that opens at a place closes, 0 when that is far off. Strings are not told from code."""
    depth, left, right = 0, text[opening], BRACKETS[text[opening]]
    for place in range(opening, min(len(text), opening + _LONGEST_BRACKET)):
        depth += (text[place] == left) - (text[place] == right)
        if not depth:
            return place
    return 0


def _pick_line(text: str, rng: random.Random) -> tuple[int, int]:
    """The bounds of a random line, without its newline; eight tries to find one that is not blank."""
    for _ in range(8):
        start = text.rfind("\n", 0, rng.randint(0, len(text))) + 1
        end = text.find("\n", start)
        end = end if end >= 0 else len(text)
        if text[start:end].strip():
            break
    return start, end


_CUTS = {"rest": rest_of_line, "bracket": rest_of_bracket, "lines": some_lines, "part": part_of_line}


def without_rights(text: str) -> str:
    """A text without the comments about rights that it begins with: they would be learnt again with every file."""
    rest = text.lstrip()
    while (found := _FIRST_COMMENT.match(rest)) and _ABOUT_RIGHTS.search(found[0]):
        rest = text = rest[found.end() :].lstrip("\n")
    return text


def indentation(line: str) -> int:
    """How many blanks a line begins with."""
    return len(line) - len(line.lstrip())


def stretches(text: str, rng: random.Random) -> Iterator[str]:
    """Cut a text at line ends into stretches of a random size, short ones as likely as long ones."""
    start = 0
    while start < len(text):
        size = int(math.exp(rng.uniform(*map(math.log, _STRETCH))))
        end = text.find("\n", start + size)
        end = end + 1 if end >= 0 else len(text)
        yield text[start:end]
        start = end


def plain_document(text: str, tokenizer: Tokenizer) -> TrainingDocument:
    """A text as it is, and its end."""
    return TrainingDocument([*tokenizer.encode(text).ids, END_ID])


def infilling_document(gap: Gap, tokenizer: Tokenizer, length: int) -> TrainingDocument:
    """A gap, suffix first, in at most length tokens: the suffix loses its end, the prefix its beginning."""
    after = tokenizer.encode(gap.after[:_SUFFIX_CHARACTERS]).ids[:SUFFIX_TOKENS]
    joined = tokenizer.encode(gap.before + gap.middle)
    first = sum(1 for _, end in joined.offsets if end <= len(gap.before))  # may begin before the gap does
    lost = max(0, len(after) + len(joined.ids) + 3 - length)
    head = [SUFFIX_ID, *after, PREFIX_ID]
    return TrainingDocument([*head, *joined.ids[lost:], END_ID], len(head) + max(0, first - lost))


def with_gaps(text: str, tokenizer: Tokenizer, length: int, rng: random.Random) -> Iterator[TrainingDocument]:
    """A text as several documents, each a stretch of it with one gap."""
    for stretch in stretches(text, rng):
        yield infilling_document(cut_gap(stretch, rng), tokenizer, length)

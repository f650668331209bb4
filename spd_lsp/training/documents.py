"""Turn source files into training documents: token ids, plain or with a gap to fill in.

A gap is written suffix first: `<|suffix|> S <|prefix|> P M <|endoftext|>`. P and M are one text, tokenised
jointly, because at completion time the prompt ends with P and the model continues it. It knows no models.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from tokenizers import Tokenizer

from spd_lsp.training.tokenizer import END_ID, FILE_ID, PREFIX_ID, SUFFIX_ID

_SUFFIX_TOKENS = 256  # of the text after the cursor
_SUFFIX_CHARACTERS = 1_600  # enough for _SUFFIX_TOKENS: code has about four characters per token
_CHUNK_CHARACTERS = (400, 2_600)  # around one gap, so that most documents fit in a context of 1,024 tokens
# No gap cuts off the rest of its last line: if a suffix begins with a newline, the gap ends with its line.
_CUT_SHARES = {"rest": 0.45, "bracket": 0.1, "lines": 0.2, "body": 0.1, "part": 0.15}
_MAX_BODY_LINES = 24
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_MAX_BRACKET_LENGTH = 300  # characters
# A comment at the start of a file: `#` alone or before a space, to exclude `#include`.
_FIRST_COMMENT = re.compile(
    r"/\*.*?\*/|(?://|#(?=[ \n!#]))[^\n]*(?:\n[ \t]*(?://|#(?=[ \n!#]))[^\n]*)*", re.DOTALL
)
_COPYRIGHT = re.compile(r"copyright|licen[cs]e|SPDX-|all rights reserved", re.IGNORECASE)
_JOINT = re.compile(r"\w+|[^\w\s]+|\s+")


class Gap(NamedTuple):
    """A text in three parts: before + middle + after."""

    before: str
    middle: str
    after: str


def cut_gap(text: str, rng: random.Random) -> Gap:
    """Cut a middle out of text: the rest of a line or of a bracket, lines, a whole body, or a part of a line."""
    kind = rng.choices(list(_CUT_SHARES), list(_CUT_SHARES.values()))[0]
    start, end = _CUTS[kind](text, rng)
    return Gap(text[:start], text[start:end], text[end:])


def _rest_of_line(text: str, rng: random.Random) -> tuple[int, int]:
    """From a random place after a line's indentation to its end, without the newline."""
    start, end = _pick_line(text, rng)
    first = start + _indentation(text[start:end])
    return rng.randint(first, max(first, end - 1)), end


def _some_lines(text: str, rng: random.Random) -> tuple[int, int]:
    """One to eight lines, with or without the first one's indentation."""
    start, end = _pick_line(text, rng)
    start += rng.choice((0, _indentation(text[start:end])))
    for _ in range(rng.randint(0, 7)):
        end = _line_end(text, end + 1)
    return start, end


def body(text: str, rng: random.Random) -> tuple[int, int]:
    """The lines below a random one that are indented deeper, if any and not too many, else some lines."""
    for _ in range(8):
        start, end = _pick_line(text, rng)
        depth = _indentation(text[start:end])
        last = place = end
        for _ in range(_MAX_BODY_LINES):
            following = _line_end(text, place + 1)
            line = text[place + 1 : following]
            if line.strip():
                if _indentation(line) <= depth:
                    break
                last = following
            if following == len(text):
                break
            place = following
        else:
            continue  # it is too long
        if last > end:
            return rng.choice((end, end + 1 + _indentation(text[end + 1 : last]))), last
    return _some_lines(text, rng)


def _part_of_line(text: str, rng: random.Random) -> tuple[int, int]:
    """From a random place after a line's indentation to a later token boundary of the line."""
    start, end = _rest_of_line(text, rng)
    joints = [match.end() for match in _JOINT.finditer(text, start, end)]
    return start, rng.choice(joints) if joints else end


def _rest_of_bracket(text: str, rng: random.Random) -> tuple[int, int]:
    """From a random place in a bracket to its closing one, if any, else the rest of a line."""
    start, end = _pick_line(text, rng)
    opening = [place for place in range(start, end) if text[place] in _BRACKETS]
    closing = _closes(text, rng.choice(opening)) if opening else 0
    if not closing:
        return _rest_of_line(text, rng)
    opened = max(place for place in opening if _closes(text, place) == closing)
    return rng.randint(opened + 1, closing), closing


def _closes(text: str, opening: int) -> int:
    """Return the offset at which a bracket closes, 0 if it is far away. Brackets in strings count, too."""
    depth = 0
    left, right = text[opening], _BRACKETS[text[opening]]
    for place in range(opening, min(len(text), opening + _MAX_BRACKET_LENGTH)):
        depth += (text[place] == left) - (text[place] == right)
        if not depth:
            return place
    return 0


def _pick_line(text: str, rng: random.Random) -> tuple[int, int]:
    """The bounds of a random line, without its newline; eight tries to find one that is not blank."""
    for _ in range(8):
        start = text.rfind("\n", 0, rng.randint(0, len(text))) + 1
        end = _line_end(text, start)
        if text[start:end].strip():
            break
    return start, end


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return end if end >= 0 else len(text)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


_CUTS = {
    "rest": _rest_of_line,
    "bracket": _rest_of_bracket,
    "lines": _some_lines,
    "body": body,
    "part": _part_of_line,
}


def strip_copyright(text: str) -> str:
    """Remove copyright comments from the start of a text, which the model would see in every file."""
    rest = text.lstrip()
    while (comment := _FIRST_COMMENT.match(rest)) and _COPYRIGHT.search(comment[0]):
        rest = text = rest[comment.end() :].lstrip("\n")
    return text


def file_document(path: str, text: str, tokenizer: Tokenizer) -> list[int]:
    """Encode a file with its path above it and an end mark, as a neighbour of other files."""
    return [FILE_ID, *tokenizer.encode(f"{path}\n{text}").ids, END_ID]


def infilling_document(gap: Gap, tokenizer: Tokenizer, length: int) -> list[int]:
    """Encode a gap, suffix first, in at most `length` tokens; the prefix loses its start."""
    after = tokenizer.encode(gap.after[:_SUFFIX_CHARACTERS]).ids[:_SUFFIX_TOKENS]
    joined = tokenizer.encode(gap.before + gap.middle).ids
    lost = max(0, len(after) + len(joined) + 3 - length)
    return [SUFFIX_ID, *after, PREFIX_ID, *joined[lost:], END_ID]


def with_gaps(text: str, tokenizer: Tokenizer, length: int, rng: random.Random) -> Iterator[list[int]]:
    """Encode a text as several documents: chunks of lines, of log-uniform random sizes, each with one gap."""
    start = 0
    while start < len(text):
        size = int(math.exp(rng.uniform(*map(math.log, _CHUNK_CHARACTERS))))
        end = min(len(text), _line_end(text, start + size) + 1)
        yield infilling_document(cut_gap(text[start:end], rng), tokenizer, length)
        start = end

"""Drafts to completions: where a text ends, what of it repeats the document, which of them are the same.

Comes in: the text of each draft with its score. Goes out: what to show, best first. Knows no ids and no LSP.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Shape = Literal["nothing", "line", "block"]

# A short text six times in a row or a long one four times: the model has run into a loop.
ENDLESS = re.compile(r"(.{3,9}?)\1{5}$|(.{10,}?)\2{3}$", re.DOTALL)
CLOSERS = ("}", ")", "]", "end", "fi", "done", "esac")


@dataclass(frozen=True, slots=True)
class Completion:
    """A text to insert at the cursor; `probability` is what it is ranked by, or how often such a one is right."""

    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cursor stands: what `rank` and `ending` need to know of the document."""

    shape: Shape
    indent: str  # of a block: lines indented less end it
    after: str  # the text behind the cursor


def rank(drafts: Iterable[tuple[str, float]], place: Place) -> list[Completion]:
    """Completions worth showing from (text, log of its worth) pairs, best first; equal ones are shown once."""
    completions: dict[str, Completion] = {}
    for text, score in drafts:
        text = shown(text, place)
        if text.strip() and not ENDLESS.search(text) and text not in completions:
            completions[text] = Completion(text, math.exp(min(score, 0.0)))
    return list(completions.values())


def shown(text: str, place: Place) -> str:
    """What a person sees of a draft."""
    return without_overlap(trim(text, place), place.after)


def trim(text: str, place: Place) -> str:
    """The part of a draft that belongs to this completion, without white space at its end.

    A block that was cut off by the length limit loses its unfinished last line.
    """
    end = ending(text, place)
    if end is None and place.shape == "block" and "\n" in text.strip():
        end = text.rindex("\n")
    return text[:end].rstrip()


def ending(text: str, place: Place) -> int | None:
    """Where in a draft the completion ends, or None if it may go on.

    Example: a line ends at its line break, `x + 1\\ny` at 5. A block ends where a line stands left of its body.
    """
    if place.shape != "block":
        return text.find("\n") if "\n" in text else None
    first, *lines = text.split("\n")
    at = len(first) + 1
    blank = 0
    for line in lines:
        content = line.strip()
        blank = 0 if content else blank + 1
        if content and len(line) - len(line.lstrip()) < len(place.indent):
            return closing_end(text, at, line, content)
        if blank > 2:
            return at
        at += len(line) + 1
    return None


def closing_end(text: str, at: int, line: str, content: str) -> int | None:
    """A line left of the body ends the block: before it, or after it if all it does is close the block."""
    if not content.startswith(CLOSERS):
        return at
    return at + len(line) if at + len(line) < len(text) else None


def without_overlap(text: str, after: str) -> str:
    """Cut off the end of a text that the document already has behind the cursor on the same line.

    Example: `len(x))` before `)` is cut to `len(x)`; `:` before `:` is cut to nothing.
    """
    rest = after.split("\n", 1)[0].strip()
    if not rest:
        return text
    for n in range(min(len(rest), len(text)), 0, -1):
        if text.endswith(rest[:n]) and not closes_its_own(text, n):
            return text[:-n].rstrip()
    return text


def closes_its_own(text: str, n: int) -> bool:
    """Whether the last n characters close a bracket that the text itself opened.

    Example: the `)` of `len(x)` does, that of `x)` does not.
    """
    pairs = (("(", ")"), ("[", "]"), ("{", "}"))
    return any(text.count(closing) <= text.count(opening) for opening, closing in pairs if closing in text[-n:])

"""Globs of ignore files with many stars -> whether a path fits, in a time that no glob makes long.

As a usual regular expression `*a*a*a*b` tries every way to share a name out among its stars, which takes for ever.
Here each star takes as little as lets what follows it fit, and gives nothing back: if any way fits, this one does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_ANY = "**"  # folders, as many as there are


def star_runs(glob: str) -> int:
    """How many stars a glob has; those that stand together are one."""
    return len(re.findall(r"\*+", glob))


def in_turn(parts: Sequence[str], first: int = 1) -> str:
    """A regular expression for parts that are ones, with anything between them; its groups count from `first`."""
    ahead = (f"(?=(.*?{part}))\\{number}" for number, part in enumerate(parts[1:], first))
    return parts[0] + "".join(ahead)


def segments(part: str) -> list[str]:
    """What stands between the stars of one part of a glob, as regular expressions of a fixed length."""
    found, at = [""], 0
    while at < len(part):
        letter = part[at]
        end = _closing_bracket(part, at) if letter == "[" else 0
        if letter == "*":
            found.append("")
        elif end:
            found[-1] += letters(part[at + 1 : end])
            at = end
        elif letter == "\\" and at + 1 < len(part):
            at += 1
            found[-1] += re.escape(part[at])
        else:
            found[-1] += "." if letter == "?" else re.escape(letter)
        at += 1
    return found


def _closing_bracket(part: str, start: int) -> int:
    """Where the bracket that opens at `start` closes, 0 if it does not; one that comes first is a letter."""
    first = start + 1 + (part[start + 1 : start + 2] in ("!", "^"))
    return max(0, part.find("]", first + 1))


def letters(inside: str) -> str:
    """The regular expression for one of the letters in brackets."""
    other = inside[0] in "!^"
    inside = inside[other:].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    return f"[{'^' if other else ''}{inside}]"


@lru_cache(1000)
def compiled(part: str) -> re.Pattern[str]:
    """The regular expression for one part of a glob."""
    *starts, end = segments(part)
    source = in_turn(starts) + f".*{end}" if starts else end
    return re.compile(source + r"\Z", re.DOTALL)


class Glob:
    """A glob with many stars. Raises `re.error` for what no glob can be."""

    def __init__(self, glob: str) -> None:
        named = glob.strip("/").split("/") if "/" in glob else [_ANY, glob]
        before = ["", *named]
        self.parts = [part for part, last in zip(named, before, strict=False) if (part, last) != (_ANY, _ANY)]
        for part in self.parts:
            compiled(part)

    def fits(self, path: str) -> bool:
        """Whether the path or a folder that it lies in fits."""
        if self.parts == [_ANY]:
            return True
        reached = self.skip({0})
        names = path.split("/")
        for number, name in enumerate(names):
            stays = {at for at in reached if at < len(self.parts) and self.parts[at] == _ANY}
            goes = {
                at + 1
                for at in reached
                if at < len(self.parts) and self.parts[at] != _ANY and compiled(self.parts[at]).match(name)
            }
            within = len(self.parts) - 1  # a last `**` means what lies in the folder, not the folder
            if len(self.parts) in goes or (self.parts[-1] == _ANY and within in stays and number):
                return True
            reached = self.skip(stays | goes)
        return False

    def skip(self, reached: set[int]) -> set[int]:
        """The same with the parts behind each `**` that stands for no folder."""
        for at, part in enumerate(self.parts[:-1]):
            if at in reached and part == _ANY:
                reached.add(at + 1)
        return reached

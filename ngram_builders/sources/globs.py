"""Globs of ignore files -> whether a path matches, in linear time whatever the glob. Knows no files and no rules.

`fnmatch` compares single names: its regular expressions never backtrack into a star, so `*a*a*a*b` is as cheap as
any other glob. What git adds (`**`, escapes, `[^...]`) is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase, translate

_ANY_DEPTH = "**"  # any number of folders
_WILDCARD = re.compile(r"[*?[]")


class NameMatcher:
    """Compares a name with many globs of `fnmatch` at once, which is quicker than one by one."""

    def __init__(self, globs: Iterable[str]) -> None:
        names, prefixes, suffixes, others = set(), set(), set(), set()
        for glob in globs:
            if not _WILDCARD.search(glob):
                names.add(glob)
            elif glob[0] == "*" and not _WILDCARD.search(glob, 1):
                suffixes.add(glob[1:])
            elif glob[-1] == "*" and not _WILDCARD.search(glob[:-1]):
                prefixes.add(glob[:-1])
            else:
                others.add(glob)
        self.names, self.prefixes, self.suffixes = frozenset(names), tuple(prefixes), tuple(suffixes)
        self.others = re.compile("|".join(map(translate, sorted(others)))) if others else None

    def __call__(self, name: str) -> bool:
        """Whether the name matches any of the globs."""
        return (
            name in self.names
            or name.endswith(self.suffixes)
            or name.startswith(self.prefixes)
            or (self.others is not None and self.others.match(name) is not None)
        )


def split_glob(glob: str) -> tuple[str, ...]:
    """Split a git glob into parts for `match_parts`: `**`, or a pattern of `fnmatch` for one name.

    Raises ValueError or `re.error` for what can match nothing, such as a bracket that is not closed.
    Example: `src/*.[^o]` -> `src`, `*.[!o]`; without a slash at any depth: `*.o` -> `**`, `*.o`
    """
    parts = [part if part == _ANY_DEPTH else _to_fnmatch(part) for part in glob.strip("/").split("/")]
    if "/" not in glob:
        parts = [_ANY_DEPTH, *parts]
    if parts[-1] == _ANY_DEPTH:
        parts.append("*")  # `a/**` matches what is in the folder, not the folder
    for part in parts:
        fnmatchcase("", part)
    return tuple(parts)


def match_parts(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a path, given as its names from the outermost folder on, matches the parts of a glob."""
    if not fnmatchcase(names[-1], parts[-1]):
        return False
    reached = _skip_any_depth(parts, {0})  # parts that may match the next name
    for name in names:
        stay = {i for i in reached if i < len(parts) and parts[i] == _ANY_DEPTH}
        step = {i + 1 for i in reached - stay if i < len(parts) and fnmatchcase(name, parts[i])}
        reached = _skip_any_depth(parts, stay | step)
    return len(parts) in reached


def _skip_any_depth(parts: Sequence[str], reached: set[int]) -> set[int]:
    """Add the parts that follow a reached `**`, which may stand for no folder at all."""
    for i in range(min(reached, default=len(parts)), len(parts)):
        if i in reached and parts[i] == _ANY_DEPTH:
            reached.add(i + 1)
    return reached


def _to_fnmatch(part: str) -> str:
    """Rewrite one part of a git glob for `fnmatch`, which knows no escapes and negates with `[!...]` only."""
    pattern, at = "", 0
    while at < len(part):
        letter = part[at]
        if letter == "[":
            negated = part[at + 1 : at + 2] in ("!", "^")
            start = at + 1 + negated
            at = part.index("]", start + 1)  # a `]` that comes first is a letter
            letter = f"[{'!' * negated}{part[start:at]}]"
        elif letter == "\\" and at + 1 < len(part):
            at += 1
            letter = f"[{part[at]}]" if part[at] in "*?[" else part[at]
        pattern += letter
        at += 1
    return pattern

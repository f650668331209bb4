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
_MAX_WILDCARDS = 16  # in one name
_MAX_COMPILED = 1_000  # globs that are compared at once; more take more memory than time is saved


class NameMatcher:
    """Compares a name with many globs of `fnmatch` at once, to spare most names a look at each.

    With more complex globs than anybody writes it says yes to every name.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        names = set()
        prefixes = set()
        suffixes = set()
        others = set()
        for glob in globs:
            if not _WILDCARD.search(glob):
                names.add(glob)
            elif glob[0] == "*" and not _WILDCARD.search(glob, 1):
                suffixes.add(glob[1:])
            elif glob[-1] == "*" and not _WILDCARD.search(glob[:-1]):
                prefixes.add(glob[:-1])
            else:
                others.add(glob)
        self.names = frozenset(names)
        self.prefixes = tuple(prefixes)
        self.suffixes = tuple(suffixes)
        self.matches_all = len(others) > _MAX_COMPILED  # then each rule is asked
        one_by_one = "|".join(map(translate, sorted(others))) if others and not self.matches_all else ""
        self.others = re.compile(one_by_one) if one_by_one else None

    def __call__(self, name: str) -> bool:
        """Whether the name matches any of the globs."""
        return (
            self.matches_all
            or name in self.names
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
    if any(len(_WILDCARD.findall(part)) > _MAX_WILDCARDS for part in parts):
        raise ValueError("more wildcards in one name than anybody writes")
    for part in parts:
        if "[" in part:  # the only thing that can be wrong; to try each part would compile it
            fnmatchcase("", part)
    return tuple(parts)


def literals(parts: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the name that a glob ends in, and the last folder that it names; None for one with wildcards."""
    named = [part if not _WILDCARD.search(part) else None for part in parts]
    return named[-1], next(filter(None, reversed(named[:-1])), None)


def match_parts(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a path, given as its names from the outermost folder on, matches the parts of a glob."""
    return fnmatchcase(names[-1], parts[-1]) and len(parts) in _reach(parts, names)


def may_match_below(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a glob that begins with a folder's names can match a path in it. Example: `a/b/*.c` -> a, a/b."""
    return parts[0] != _ANY_DEPTH and bool(_reach(parts, names) - {len(parts)})


def _reach(parts: Sequence[str], names: Sequence[str]) -> set[int]:
    """How many parts of a glob the names of a path may have matched, in all ways."""
    reached = _skip_any_depth(parts, {0})  # parts that may match the next name
    for name in names:
        stay = {i for i in reached if i < len(parts) and parts[i] == _ANY_DEPTH}
        step = {i + 1 for i in reached - stay if i < len(parts) and fnmatchcase(name, parts[i])}
        reached = _skip_any_depth(parts, stay | step)
    return reached


def _skip_any_depth(parts: Sequence[str], reached: set[int]) -> set[int]:
    """Add the parts that follow a reached `**`, which may stand for no folder at all."""
    for i in range(min(reached, default=len(parts)), len(parts)):
        if i in reached and parts[i] == _ANY_DEPTH:
            reached.add(i + 1)
    return reached


def _to_fnmatch(part: str) -> str:
    """Rewrite one part of a git glob for `fnmatch`, which knows no escapes and negates with `[!...]` only."""
    pattern = ""
    at = 0
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

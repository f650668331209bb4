"""Lines of `.gitignore`, `.gitattributes` and the like -> the last rule about a path, as git decides it.

A glob becomes an expression for a whole path that takes linear time: what stands between two wildcards is matched
where it comes first, and never looked for again, so `*a*a*a*b` is cheap.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from ngram_builders.sources.git_repository import NO_FOLLOW, read_regular_file

ATTRIBUTES_FILE = ".gitattributes"
_MAX_FILE_BYTES = 1 << 20
_MAX_RULES = 10_000  # of a file
_MAX_STEPS = 4_000  # names and wildcards of a file that a path is compared with; 1 ms
_WILDCARD = re.compile(r"[]*?[\\]")
_STATES = {"{}": True, "{}=true": True, "{}=false": False, "-{}": False, "!{}": None}
_ATTRIBUTES = re.compile(r'\s*("(?:\\.|[^"\\])*"|[^\s#!"]\S*)\s+(.*)')

_ANY_DEPTH = "\0"  # any number of folders
_ITEM = re.compile(r"\\?(.)(?:-\\?([^\]]))?", re.DOTALL)  # of a set
_SET = r"(?:\\.|[^]\\])"
_TOKEN = re.compile(rf"(?P<star>\*+)|(?P<any>\?)|\[(?P<not>[!^]?)(?P<set>\]{_SET}*|{_SET}+)\]|\\(.)|([^\\[])")
_number = itertools.count()


class Rule:
    """A line about paths: it skips those that match (True), brings them back (False), or unsets both (None)."""

    def __init__(self, glob: str, skips: bool | None, where: str, line: int) -> None:
        """Raises ValueError for an invalid glob."""
        self.skips = skips
        self.where = where  # as file:line: text
        self.line = line
        self.folders_only = glob.endswith("/")
        self.glob = glob.rstrip("/")
        self.steps = 1 + len(re.findall(r"[*?[/]", glob))
        if not self.glob.strip():
            raise ValueError("nothing")
        self.expression = whole_path(self.glob)
        self.end = _WILDCARD.split(self.glob.rpartition("/")[2])[-1]  # of every name that matches

    @classmethod
    def of(cls, text: str, where: str, line: int) -> Rule:
        """The rule that a line of an ignore file states; raises ValueError if there is none."""
        stripped = text.rstrip(" ")
        stripped += " " * (stripped.endswith("\\") and stripped != text)
        if stripped.startswith("#"):
            raise ValueError("a comment")
        return cls(stripped.removeprefix("!"), not stripped.startswith("!"), where + stripped, line)

    @cached_property
    def matches(self) -> re.Pattern[str]:
        """The paths that the rule is about."""
        return re.compile(self.expression, re.DOTALL)


class RuleFile(NamedTuple):
    """The rules of a file for the paths below a folder; of those with wildcards the last few hundred."""

    base: str  # the folder, a separator at its end
    by_path: dict[str, list[Rule]]  # those without wildcards: by name, or by path with a slash before it
    others: list[Rule]  # last first
    ends: tuple[str, ...]  # of theirs

    @classmethod
    def of(cls, folder: str, rules: Iterable[Rule]) -> RuleFile:
        """Sort the rules."""
        by_path: dict[str, list[Rule]] = {}
        others = []
        steps = 0
        for rule in sorted(rules, key=lambda rule: -rule.line):
            if not _WILDCARD.search(rule.glob):
                known = by_path.setdefault("/" * ("/" in rule.glob) + rule.glob.lstrip("/"), [])
                if all(rule.folders_only != other.folders_only for other in known):
                    known.append(rule)
            elif (steps := steps + rule.steps) <= _MAX_STEPS:
                others.append(rule)
        return cls(os.path.join(folder, ""), by_path, others, tuple({rule.end for rule in others}))  # noqa: PTH118

    def find(self, path: str, is_folder: bool) -> Rule | None:
        """Return the last rule about the path, which is the one that decides."""
        inner = path[len(self.base) :].replace(os.sep, "/")
        name = inner.rpartition("/")[2]
        best: Rule | None = None
        for rule in itertools.chain(self.by_path.get(name, ()), self.by_path.get(f"/{inner}", ())):
            if (is_folder or not rule.folders_only) and (best is None or rule.line > best.line):
                best = rule
        for rule in self.others if name.endswith(self.ends) else ():
            if best and rule.line < best.line:
                break
            if name.endswith(rule.end) and (is_folder or not rule.folders_only) and rule.matches.fullmatch(inner):
                return rule
        return best


def read_rules(path: str, kinds: Iterable[str]) -> Iterator[tuple[str, Rule]]:
    """Yield the rules in a file, each with its kind; as git does, read a link only if it is not in the work tree.

    kinds: of an ignore file its only one; else the names of attributes.
    """
    flags = NO_FOLLOW if os.path.basename(path).startswith(".") else 0  # noqa: PTH119
    text = read_regular_file(path, _MAX_FILE_BYTES, flags).decode("utf-8-sig", errors="surrogateescape")
    for number, line in enumerate(text.split("\n")[:_MAX_RULES], 1):
        where = f"{path}:{number}: "
        with suppress(ValueError):  # a comment, or no glob
            if path.endswith(ATTRIBUTES_FILE):
                yield from _read_attributes(line.strip(), kinds, where, number)
            else:
                yield from ((kind, Rule.of(line.removesuffix("\r"), where, number)) for kind in kinds)


def _read_attributes(line: str, names: Iterable[str], where: str, number: int) -> Iterator[tuple[str, Rule]]:
    """Yield the attributes that a line sets, as rules; of several words about one, the last counts."""
    if found := _ATTRIBUTES.fullmatch(line):
        glob, words = found[1], found[2].split()
        if glob.startswith('"'):
            glob = re.sub(r'\\([\\"])', r"\1", glob[1:-1])
        for name in names:
            states = [skips for word in words for form, skips in _STATES.items() if word == form.format(name)]
            if states:
                yield name, Rule(glob, states[-1], where + line, number)


def whole_path(glob: str) -> str:
    """Return an expression for the paths that a glob matches; one that names no folder is about all of them.

    Raises ValueError for what can match nothing, such as a bracket that is not closed.
    """
    parts = [
        _ANY_DEPTH if part.strip("*") == "" < part[1:] else _name(part) for part in glob.lstrip("/").split("/")
    ]
    if "/" not in glob:
        parts.insert(0, _ANY_DEPTH)
    if parts[-1] == _ANY_DEPTH:
        parts.append(_name("*"))  # `a/**` matches what is in the folder, not the folder
    return _join("/".join(parts).split(f"{_ANY_DEPTH}/"), "(?:.*/)?", "(?:[^/]*/)*?")


def name_matcher(globs: str) -> Callable[[str], object]:
    """Tell whether a name matches any of these globs, which are our own."""
    given = set(globs.split())
    names = {glob for glob in given if "*" not in glob}
    ends = {glob for glob in given if glob.rfind("*") == 0}
    end = tuple(glob[1:] for glob in ends)
    others = re.compile("|".join(map(_name, sorted(given - names - ends))) or "(?!)")
    return lambda name: name in names or name.endswith(end) or others.fullmatch(name)


def _name(glob: str) -> str:
    """The expression for one name."""
    chunks = [""]
    at = 0
    while at < len(glob):
        token = _TOKEN.match(glob, at)
        if not token:
            raise ValueError("no glob")
        at = token.end()
        if token["star"]:
            chunks.append("")
        elif token["set"]:
            chunks[-1] += f"(?!/)[{'^' * bool(token['not'])}{''.join(map(_item, _ITEM.finditer(token['set'])))}]"
        else:
            chunks[-1] += "[^/]" if token["any"] else re.escape(token[5] or token[6])
    return _join(chunks, "[^/]*", "[^/]*?")


def _item(item: re.Match[str]) -> str:
    """A letter or range of letters in a set."""
    low, high = item.groups()
    return re.escape(low) + (f"{re.escape(low)}-{re.escape(high)}" if high and high > low else "")


def _join(chunks: Sequence[str], gap: str, shortest_gap: str) -> str:
    """What the chunks match one after the other with any gap between them."""
    first, *rest = chunks
    middle = ""
    for chunk in filter(None, rest[:-1]):
        group = f"g{next(_number)}"  # matched once: what is in a lookahead is not tried again
        middle += f"(?=(?P<{group}>{shortest_gap}{chunk}))(?P={group})"
    return first + middle + (gap + rest[-1] if rest else "")

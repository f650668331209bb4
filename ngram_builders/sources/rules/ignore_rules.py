"""Lines of an ignore file -> the last rule about a path, as git decides it. Knows no folders and no reasons.

The same rules for `.gitignore`, `.gitattributes` and the globs that a user names.
"""

from __future__ import annotations

import heapq
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ngram_builders.sources.git_repository import read_regular_file
from ngram_builders.sources.rules.globs import NameMatcher, literals, match_parts, may_match_below, split_glob

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_MAX_FILE_BYTES = 1 << 20
_MAX_RULES = 10_000  # of a file
MAX_RULE_CHARACTERS = 4_096
_MAX_PARTS = 64  # folders that a rule names, one below the other
_MAX_STEPS, _STEPS_OF_A_RULE = 1_000, 16  # of comparing one path with the rules of a file: 2 ms


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of an ignore file."""

    line: int
    text: str
    negated: bool  # brings back what an earlier rule excludes
    folders_only: bool
    parts: tuple[str, ...]  # of its glob

    @classmethod
    def parse(cls, line: int, text: str) -> IgnoreRule | None:
        """Parse a line; None if it holds no rule."""
        if text.startswith("#") or len(text) > MAX_RULE_CHARACTERS:
            return None
        text = text.rstrip() + " " * text.rstrip().endswith("\\")
        glob = text.removeprefix("!").rstrip("/")
        if not glob.strip():
            return None
        try:
            parts = split_glob(glob)
        except (ValueError, re.error):
            return None
        return (
            cls(line, text, text.startswith("!"), text.endswith("/"), parts) if len(parts) <= _MAX_PARTS else None
        )

    def matches(self, names: Sequence[str], is_folder: bool) -> bool:
        """Whether the rule is about this very path, not only about a folder above it."""
        return (is_folder or not self.folders_only) and match_parts(self.parts, names)


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The rules of one ignore file."""

    path: str
    base: str  # the folder that paths are relative to, a separator at its end
    may_match: NameMatcher  # the last part of any rule

    by_names: Mapping[tuple[str | None, str | None], Sequence[IgnoreRule]]  # by the `literals` of their globs

    @classmethod
    def of(cls, path: str, folder: str, rules: Iterable[IgnoreRule]) -> IgnoreFile | None:
        """The rules of a file for the paths below a folder; None if there are none."""
        kept = tuple(itertools.islice(rules, _MAX_RULES))
        if not kept:
            return None
        base = folder if folder.endswith(os.sep) else folder + os.sep
        by_names: dict[tuple[str | None, str | None], list[IgnoreRule]] = {}
        for rule in reversed(kept):
            by_names.setdefault(literals(rule.parts), []).append(rule)
        return cls(path, base, NameMatcher(rule.parts[-1] for rule in kept), by_names)

    def last_match(self, path: str, name: str, is_folder: bool) -> IgnoreRule | None:
        """Return the last rule about the path, which is the one that decides.

        Rules are asked from the end of the file, for a few milliseconds at most: only a file that was made to be
        slow has so many about one name.
        """
        if not self.may_match(name):
            return None
        names = self._names(path)
        rules = self._affordable(self._rules_about(names), names)
        return next((rule for rule in rules if rule.matches(names, is_folder)), None)

    def describe(self, rule: IgnoreRule) -> str:
        """Where one of its rules stands, and what it says."""
        return f"{self.path}:{rule.line}: {rule.text}"

    def leads_below(self, folder: str, *, negated: bool) -> bool:
        """Whether such a rule names this folder and goes on to something in it."""
        names = self._names(folder)
        rules = self._affordable(itertools.chain(*self.by_names.values()), names)
        return any(rule.negated == negated and may_match_below(rule.parts, names) for rule in rules)

    @staticmethod
    def _affordable(rules: Iterable[IgnoreRule], names: Sequence[str]) -> Iterator[IgnoreRule]:
        """The rules with which a path of these names can be compared in the time that there is."""
        steps = 0
        for rule in rules:
            steps += 1 + len(names) * len(rule.parts) // _STEPS_OF_A_RULE
            if steps > _MAX_STEPS:
                return
            yield rule

    def _names(self, path: str) -> list[str]:
        return path[len(self.base) :].replace(os.sep, "/").split("/")

    def _rules_about(self, names: Sequence[str]) -> Sequence[IgnoreRule]:
        """The rules whose names without wildcards are in the path, last first."""
        folders = {None, *names[:-1]}
        lists = [self.by_names.get((last, folder)) for last in (names[-1], None) for folder in folders]
        found = [each for each in lists if each]
        if len(found) == 1:
            return found[0]
        return heapq.nlargest(_MAX_STEPS, itertools.chain(*found), key=lambda rule: rule.line)


def read_lines(path: str, flags: int = _NO_FOLLOW) -> Iterable[tuple[int, str]]:
    """Number the lines of such a file, which is not read through a link unless flags say so."""
    text = read_regular_file(path, _MAX_FILE_BYTES, flags).decode("utf-8-sig", errors="replace")
    return enumerate(text.splitlines(), 1)

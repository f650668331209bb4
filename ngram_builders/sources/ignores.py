"""Ignore files -> which paths below them are skipped, as git decides it. Knows no source code and no tables.

The rules of `.gitignore` end where a nested repository begins; those of `.spdignore` do not.
"""

from __future__ import annotations

import heapq
import itertools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ngram_builders.sources.git_repository import GIT, WorkTree, git_folder, read_regular_file
from ngram_builders.sources.globs import NameMatcher, literals, match_parts, split_glob

IGNORE_FILES = (".gitignore", ".spdignore")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_MAX_FILE_BYTES = 1 << 20
_MAX_RULES = 10_000  # of a file
_MAX_NESTED = 32  # files, one below the other
_MAX_RULE_CHARACTERS = 4_096
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
        if text.startswith("#") or len(text) > _MAX_RULE_CHARACTERS:
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

    def last_match(self, path: str, name: str, is_folder: bool) -> IgnoreRule | None:
        """Return the last rule about the path, which is the one that decides.

        Rules are asked from the end of the file, for a few milliseconds at most: only a file that was made to be
        slow has so many about one name.
        """
        if not self.may_match(name):
            return None
        names = path[len(self.base) :].replace(os.sep, "/").split("/")
        steps = 0
        for rule in self._rules_about(names):
            steps += 1 + len(names) * len(rule.parts) // _STEPS_OF_A_RULE
            if steps > _MAX_STEPS:
                break
            if rule.matches(names, is_folder):
                return rule
        return None

    def _rules_about(self, names: Sequence[str]) -> Sequence[IgnoreRule]:
        """The rules whose names without wildcards are in the path, last first."""
        folders = {None, *names[:-1]}
        lists = [self.by_names.get((last, folder)) for last in (names[-1], None) for folder in folders]
        found = [each for each in lists if each]
        if len(found) == 1:
            return found[0]
        return heapq.nlargest(_MAX_STEPS, itertools.chain(*found), key=lambda rule: rule.line)


class Exclusion(NamedTuple):
    """Why a path does not count."""

    reason: str
    rule: str | None  # as file:line: text


@dataclass(frozen=True, slots=True)
class Ignores:
    """The ignore files in force in one folder, by kind, innermost first; the first that has a rule decides.

    As in git, `.gitignore` says nothing about what is tracked.
    """

    files: tuple[tuple[IgnoreFile, ...], ...] = ((),) * len(IGNORE_FILES)
    work_tree: WorkTree | None = None
    untracked: Exclusion | None = None  # why only what git tracks counts here

    def enter(self, folder: str, names: Collection[str]) -> Ignores:
        """Return the rules in force inside a folder that holds these names."""
        inner, work_tree, untracked = list(self.files), self.work_tree, self.untracked
        if GIT in names:
            exclude = _read_ignore_file(str(git_folder(folder) / "info" / "exclude"), folder)
            inner[0] = (exclude,) if exclude else ()
            work_tree, untracked = WorkTree(folder), None
        for kind, name in enumerate(IGNORE_FILES):
            if name in names and (file := _read_ignore_file(os.path.join(folder, name), folder, _NO_FOLLOW)):  # noqa: PTH118
                inner[kind] = (file, *inner[kind])
        if inner == list(self.files) and work_tree is self.work_tree:
            return self
        return Ignores(tuple(inner), work_tree, untracked)

    @property
    def is_too_deep(self) -> bool:
        """Whether more ignore files lie one below the other than anybody writes: each is asked for each path."""
        return any(len(files) > _MAX_NESTED for files in self.files)

    def tracks(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether git tracks a file, or anything in a folder."""
        return self.work_tree is not None and self.work_tree.tracks(path, is_folder=is_folder)

    def find(self, path: str, name: str) -> Exclusion | None:
        """Find what excludes a file."""
        if self.untracked is not None and not self.tracks(path):
            return self.untracked
        is_free = not any(file.may_match(name) for file in self.files[0]) or self.tracks(path)
        by_git = None if is_free else self._find_rule(0, path, name, is_folder=False)
        return by_git or self._find_rule(1, path, name, is_folder=False)

    def enter_named(self, path: str, name: str) -> Ignores | Exclusion:
        """Return the rules for a folder of this name, or what excludes all of it."""
        by_git, by_user = (self._find_rule(kind, path, name, is_folder=True) for kind in range(len(IGNORE_FILES)))
        by_git = self.untracked or by_git
        if by_git is not None and not self.tracks(path, is_folder=True):
            return by_git
        return by_user or (self if by_git is self.untracked else Ignores(self.files, self.work_tree, by_git))

    def _find_rule(self, kind: int, path: str, name: str, *, is_folder: bool) -> Exclusion | None:
        """Find the rule of one kind of file that excludes a path."""
        for file in self.files[kind]:
            if rule := file.last_match(path, name, is_folder):
                text = f"{file.path}:{rule.line}: {rule.text}"
                return None if rule.negated else Exclusion(f"ignored by {IGNORE_FILES[kind]}", text)
        return None


def _read_ignore_file(path: str, folder: str, flags: int = 0) -> IgnoreFile | None:
    """Read the rules of an ignore file for the paths below a folder; None if there are none.

    What is in the repository is not read through a link.
    """
    lines = read_regular_file(path, _MAX_FILE_BYTES, flags).decode("utf-8-sig", errors="replace").splitlines()
    parsed = (rule for number, line in enumerate(lines, 1) if (rule := IgnoreRule.parse(number, line)))
    rules = tuple(itertools.islice(parsed, _MAX_RULES))
    if not rules:
        return None
    base = folder if folder.endswith(os.sep) else folder + os.sep
    by_names: dict[tuple[str | None, str | None], list[IgnoreRule]] = {}
    for rule in reversed(rules):
        by_names.setdefault(literals(rule.parts), []).append(rule)
    return IgnoreFile(path, base, NameMatcher(rule.parts[-1] for rule in rules), by_names)


def outer_ignores(top: str, markers: Sequence[str]) -> Ignores:
    """Return the rules that reach into `top` from the repository around it; markers: the names to look for."""
    ignores = Ignores()
    parents = [str(folder) for folder in Path(top).parents]
    repository = next((folder for folder in (top, *parents) if os.path.lexists(Path(folder, GIT))), None)
    if repository is None or repository == top:
        return ignores
    for folder in reversed(parents[: parents.index(repository) + 1]):
        ignores = ignores.enter(folder, [name for name in markers if os.path.lexists(Path(folder, name))])
    return ignores

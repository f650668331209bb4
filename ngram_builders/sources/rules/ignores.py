"""The rules in force in a folder -> which paths in it are skipped, and why. Knows no tables.

Rules are lines of `.gitignore`, `.gitattributes` and `.spdignore`, or globs that the user named. Those of git's
files end where a nested repository begins; the others do not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ngram_builders.sources.filters import SECRET
from ngram_builders.sources.git_repository import GIT, git_folder
from ngram_builders.sources.name_rules import INTERNAL, SYMLINK, VENDORED, WORKTREE, check_folder_name
from ngram_builders.sources.rules.attributes import (
    ATTRIBUTES_FILE,
    LINGUIST_GENERATED,
    LINGUIST_VENDORED,
    NO_DIFF,
    Attributes,
)
from ngram_builders.sources.rules.ignore_rules import IgnoreFile, IgnoreRule, read_lines
from ngram_builders.sources.rules.selection import Selection
from ngram_builders.sources.unwritten import GENERATED

_IGNORE_FILES = (".gitignore", ".spdignore")
RULE_FILES = (*_IGNORE_FILES, ATTRIBUTES_FILE)
_MAX_NESTED = 32  # files, one below the other
_FINAL = frozenset({INTERNAL, SECRET, SYMLINK, WORKTREE})  # reasons that nothing outweighs
_REASONS = {LINGUIST_VENDORED: VENDORED, LINGUIST_GENERATED: GENERATED, NO_DIFF: "marked -diff"}


class Exclusion(NamedTuple):
    """Why a path does not count."""

    reason: str
    rule: str | None = None  # as file:line: text


@dataclass(frozen=True, slots=True)
class Ignores:
    """The ignore files in force in one folder, by kind, innermost first; the first that has a rule decides."""

    files: tuple[tuple[IgnoreFile, ...], ...] = ((),) * len(_IGNORE_FILES)
    attributes: Attributes = field(default_factory=Attributes)
    include: IgnoreFile | None = None
    exclude: IgnoreFile | None = None
    in_git: bool = False  # whether a work tree is around
    outside: Exclusion | None = None  # why only what is brought back counts here
    is_included: bool = False  # whether the user included a folder around

    def enter(self, folder: str, names: Collection[str]) -> Ignores:
        """Return the rules in force inside a folder that holds these names."""
        inner = list(self.files)
        attributes = self.attributes
        if GIT in names:
            exclude = _read_ignore_file(str(git_folder(folder) / "info" / "exclude"), folder, flags=0)
            inner[0] = (exclude,) if exclude else ()
            attributes = Attributes()
        for kind, name in enumerate(_IGNORE_FILES):
            if name in names and (file := _read_ignore_file(os.path.join(folder, name), folder)):  # noqa: PTH118
                inner[kind] = (file, *inner[kind])
        if ATTRIBUTES_FILE in names:
            attributes = attributes.enter(folder)
        return replace(self, files=tuple(inner), attributes=attributes, in_git=self.in_git or GIT in names)

    @property
    def is_too_deep(self) -> bool:
        """Whether more ignore files lie one below the other than anybody writes: each is asked for each path."""
        return max(self.attributes.depth, *map(len, self.files)) > _MAX_NESTED

    # --- a file -----------------------------------------------------------------------------------------------

    def find(self, path: str, name: str, by_name: str | None) -> Exclusion | None:
        """Find what excludes a file; by_name: why its name does."""
        if by_name in _FINAL:
            return Exclusion(by_name)
        excluded = self._find_excluded(path, name, is_folder=False)
        if not excluded and _decides(self.include, path, name, is_folder=False):
            return None
        if by_name and not (by_name == GENERATED and self.attributes.state(LINGUIST_GENERATED, path)[0] is False):
            return Exclusion(by_name)
        return excluded or self._find_ignored(path, name, is_folder=False) or self._find_attribute(path)

    def _find_attribute(self, path: str) -> Exclusion | None:
        """Find the attribute that excludes a file, or the reason for which nothing around it counts."""
        states = {attribute: self.attributes.state(attribute, path) for attribute in _REASONS}
        if self.outside and not (self.outside.reason == VENDORED and states[LINGUIST_VENDORED][0] is False):
            return self.outside
        if self.is_included:
            del states[LINGUIST_VENDORED]
        found = (Exclusion(_REASONS[attribute], line) for attribute, (state, line) in states.items() if state)
        return next(found, None)

    # --- a folder ---------------------------------------------------------------------------------------------

    def enter_named(self, path: str, name: str) -> Ignores | Exclusion:
        """Return the rules for a folder of this name, or what excludes all of it."""
        by_name = check_folder_name(name)
        if by_name in _FINAL:
            return Exclusion(by_name)
        if excluded := self._find_excluded(path, name, is_folder=True):
            return excluded
        if _decides(self.include, path, name, is_folder=True):
            return replace(self, outside=None, is_included=True)
        why = Exclusion(by_name) if by_name else self._find_ignored(path, name, is_folder=True)
        return self.leave(path, why or self.outside)

    def leave(self, path: str, why: Exclusion | None) -> Ignores | Exclusion:
        """Return the rules for an excluded folder if something in it is brought back; else what excludes it."""
        if why is None or (why.reason == VENDORED and self.is_included):
            return self
        if why.reason in _FINAL:
            return why
        if _decides(self.include, path, os.path.basename(path), is_folder=True):  # noqa: PTH119
            return self
        leads = self.include is not None and self.include.leads_below(path, negated=False)
        leads = leads or (why.reason == VENDORED and self.attributes.leads_below(path))
        return replace(self, outside=why) if leads else why

    def _find_excluded(self, path: str, name: str, *, is_folder: bool) -> Exclusion | None:
        """Find the user's glob that excludes a path."""
        rule = _decides(self.exclude, path, name, is_folder=is_folder)
        return Exclusion("excluded", f"--exclude {rule.text}") if rule else None

    def _find_ignored(self, path: str, name: str, *, is_folder: bool) -> Exclusion | None:
        """Find the rule that excludes a path; of each kind of file the innermost with a rule about it decides."""
        for kind, files in zip(_IGNORE_FILES, self.files, strict=True):
            for file in files:
                if rule := file.last_match(path, name, is_folder):
                    if not rule.negated:
                        return Exclusion(f"ignored by {kind}", file.describe(rule))
                    break
        return None


def _decides(file: IgnoreFile | None, path: str, name: str, *, is_folder: bool) -> IgnoreRule | None:
    """Return the last of the user's globs about a path, unless it is one with `!`."""
    rule = file and file.last_match(path, name, is_folder)
    return rule if rule and not rule.negated else None


def _read_ignore_file(path: str, folder: str, **how: int) -> IgnoreFile | None:
    """Read the rules of an ignore file for the paths below a folder; None if there are none."""
    parsed = (rule for number, line in read_lines(path, **how) if (rule := IgnoreRule.parse(number, line)))
    return IgnoreFile.of(path, folder, parsed)


def outer_ignores(top: str, markers: Sequence[str], selection: Selection) -> Ignores:
    """Return the rules that reach into `top`: the user's, and those of the repository around it.

    markers: the names to look for.
    """
    include, exclude = selection.rules(top)
    ignores = Ignores(include=include, exclude=exclude)
    parents = [str(folder) for folder in Path(top).parents]
    repository = next((folder for folder in (top, *parents) if os.path.lexists(Path(folder, GIT))), None)
    if repository is None or repository == top:
        return ignores
    for folder in reversed(parents[: parents.index(repository) + 1]):
        ignores = ignores.enter(folder, [name for name in markers if os.path.lexists(Path(folder, name))])
    return ignores

"""The rules in force in a folder -> which paths in it are skipped, and why. Knows no tables.

Rules are lines of `.gitignore`, `.gitattributes` and `.spdignore`, or globs that the user named. Those of git's
files end where a nested repository begins; the others do not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ngram_builders.sources.filters import GENERATED, SECRET
from ngram_builders.sources.git_repository import GIT, git_folder
from ngram_builders.sources.name_rules import INTERNAL, SYMLINK, VENDORED, WORKTREE, check_folder_name
from ngram_builders.sources.rules.rule_files import ATTRIBUTES_FILE, Rule, RuleFile, read_rules
from ngram_builders.sources.rules.selection import EXCLUDE, INCLUDE, Selection

_GITIGNORE, _SPDIGNORE = ".gitignore", ".spdignore"
_VENDORED, _GENERATED = "linguist-vendored", "linguist-generated"  # GitHub's attributes
_KINDS = {_GITIGNORE: (_GITIGNORE,), _SPDIGNORE: (_SPDIGNORE,), ATTRIBUTES_FILE: (_VENDORED, _GENERATED)}
RULE_FILES = tuple(_KINDS)
_REASONS = {
    _GITIGNORE: f"ignored by {_GITIGNORE}", _SPDIGNORE: f"ignored by {_SPDIGNORE}",
    _VENDORED: VENDORED, _GENERATED: GENERATED, EXCLUDE: "excluded", INCLUDE: "included",
}  # fmt: skip
_MAX_NESTED = 32  # rule files, one below the other; of more the innermost: each is asked for each path
_FINAL = frozenset({INTERNAL, SECRET, SYMLINK, WORKTREE})  # reasons that nothing outweighs


class Exclusion(NamedTuple):
    """Why a path does not count."""

    reason: str
    rule: str | None = None  # as file:line: text


@dataclass(frozen=True, slots=True)
class Ignores:
    """The rules in force in one folder, by kind, those of the innermost file first; the first file decides.

    A kind is an ignore file, an attribute or an option.
    """

    files: Mapping[str, tuple[RuleFile, ...]] = field(default_factory=dict)
    in_git: bool = False  # whether a work tree is around
    is_included: bool = False  # whether the user included a folder around

    def enter(self, folder: str, names: Collection[str]) -> Ignores:
        """Return the rules in force inside a folder that holds these names."""
        sources = {os.path.join(folder, name): kinds for name, kinds in _KINDS.items() if name in names}  # noqa: PTH118
        files = dict(self.files)
        if GIT in names:
            sources = {str(git_folder(folder) / "info" / "exclude"): (_GITIGNORE,), **sources}
            files = {kind: files[kind] for kind in (_SPDIGNORE, INCLUDE, EXCLUDE) if kind in files}
        for path, kinds in sources.items():
            rules = list(read_rules(path, kinds))
            for kind in {kind for kind, _ in rules}:
                file = RuleFile.of(folder, (rule for each, rule in rules if each == kind))
                files[kind] = (file, *files.get(kind, ()))[:_MAX_NESTED]
        return replace(self, files=files, in_git=self.in_git or GIT in names)

    def find(self, path: str, by_name: str | None) -> Exclusion | None:
        """Find what excludes a file; by_name: why its name does."""
        if by_name in _FINAL:
            return Exclusion(by_name)
        excluded = self._find(EXCLUDE, path)
        if not excluded and self._find(INCLUDE, path):
            return None
        rule = self._decide(_GENERATED, path, is_folder=False) if by_name == GENERATED else None
        if by_name and not (rule and rule.skips is False):
            return Exclusion(by_name)
        if found := excluded or self._find(_GITIGNORE, path) or self._find(_SPDIGNORE, path):
            return found
        return (None if self.is_included else self._find(_VENDORED, path)) or self._find(_GENERATED, path)

    def enter_named(self, path: str, name: str) -> Ignores | Exclusion:
        """Return the rules for a folder of this name, or what excludes it with all that is in it."""
        by_name = check_folder_name(name)
        if by_name in _FINAL:
            return Exclusion(by_name)
        if excluded := self._find(EXCLUDE, path, is_folder=True):
            return excluded
        if self._find(INCLUDE, path, is_folder=True):
            return replace(self, is_included=True)
        if by_name and not self.includes(path, by_name):
            return Exclusion(by_name)
        return self._find(_GITIGNORE, path, is_folder=True) or self._find(_SPDIGNORE, path, is_folder=True) or self

    def includes(self, folder: str, by_rule: str) -> bool:
        """Whether the user included a folder that a rule for its name or content excludes."""
        if by_rule in _FINAL:
            return False
        is_around = self.is_included and by_rule == VENDORED
        return is_around or self._find(INCLUDE, folder, is_folder=True) is not None

    def _find(self, kind: str, path: str, *, is_folder: bool = False) -> Exclusion | None:
        """Find the rule of a kind that excludes a path (or includes it)."""
        rule = self._decide(kind, path, is_folder=is_folder)
        return Exclusion(_REASONS[kind], rule.where) if rule and rule.skips else None

    def _decide(self, kind: str, path: str, *, is_folder: bool) -> Rule | None:
        """Return the rule that decides about a path: the last one of the innermost file that has any."""
        for file in self.files.get(kind, ()):
            if rule := file.find(path, is_folder):
                return rule
        return None


def outer_ignores(top: str, markers: Sequence[str], selection: Selection) -> Ignores:
    """Return the rules that reach into `top`: the user's, and those of the repository around it.

    markers: the names to look for.
    """
    ignores = Ignores(selection.rules(top))
    parents = [str(folder) for folder in Path(top).parents]
    repository = next((folder for folder in (top, *parents) if os.path.lexists(Path(folder, GIT))), top)
    for folder in reversed(parents[: parents.index(repository) + 1] if repository != top else ()):
        ignores = ignores.enter(folder, [name for name in markers if os.path.lexists(Path(folder, name))])
    return ignores

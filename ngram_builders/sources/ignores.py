"""Ignore files -> which paths below them are skipped, as git decides it. Knows no source code and no tables.

The rules of `.gitignore` end where a nested repository begins; those of `.spdignore` do not.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ngram_builders.sources.globs import NameMatcher, match_parts, split_glob

GIT = ".git"
IGNORE_FILES = (".gitignore", ".spdignore")
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_MAX_FILE_BYTES = 1 << 20
_MAX_RULES = 10_000  # of a file
_MAX_RULE_CHARACTERS = 4_096


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
            return cls(line, text, text.startswith("!"), text.endswith("/"), split_glob(glob))
        except (ValueError, re.error):
            return None

    def matches(self, names: Sequence[str], is_folder: bool) -> bool:
        """Whether the rule is about this very path, not only about a folder above it."""
        return (is_folder or not self.folders_only) and match_parts(self.parts, names)


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The rules of one ignore file."""

    path: str
    base: str  # the folder that paths are relative to, a separator at its end
    rules: tuple[IgnoreRule, ...]
    may_match: NameMatcher  # the last part of any rule

    def last_match(self, path: str, name: str, is_folder: bool) -> IgnoreRule | None:
        """Return the last rule about the path, which is the one that decides."""
        if not self.may_match(name):
            return None
        names = path[len(self.base) :].replace(os.sep, "/").split("/")
        return next((rule for rule in reversed(self.rules) if rule.matches(names, is_folder)), None)


class Exclusion(NamedTuple):
    """Why a path is ignored."""

    reason: str
    rule: str  # as file:line: text


@dataclass(frozen=True, slots=True)
class Ignores:
    """The ignore files in force in one folder, by kind, innermost first; the first that has a rule decides."""

    files: tuple[tuple[IgnoreFile, ...], ...] = ((),) * len(IGNORE_FILES)

    def enter(self, folder: str, names: Collection[str]) -> Ignores:
        """Return the rules in force inside a folder that holds these names."""
        inner = list(self.files)
        if GIT in names:
            exclude = _read_ignore_file(str(git_folder(folder) / "info" / "exclude"), folder)
            inner[0] = (exclude,) if exclude else ()
        for kind, name in enumerate(IGNORE_FILES):
            if name in names and (file := _read_ignore_file(os.path.join(folder, name), folder)):  # noqa: PTH118
                inner[kind] = (file, *inner[kind])
        return self if inner == list(self.files) else Ignores(tuple(inner))

    def find(self, path: str, name: str, *, is_folder: bool = False) -> Exclusion | None:
        """Find what excludes a path; `.spdignore` cannot bring back what git ignores."""
        for kind, files in zip(IGNORE_FILES, self.files, strict=True):
            matches = ((file, file.last_match(path, name, is_folder)) for file in files)
            file, rule = next(((file, rule) for file, rule in matches if rule), (None, None))
            if file and rule and not rule.negated:
                return Exclusion(f"ignored by {kind}", f"{file.path}:{rule.line}: {rule.text}")
        return None


def _read_ignore_file(path: str, folder: str) -> IgnoreFile | None:
    """Read the rules of an ignore file for the paths below a folder; None if there are none."""
    lines = _read_start(path).decode("utf-8-sig", errors="replace").splitlines()
    parsed = (rule for number, line in enumerate(lines, 1) if (rule := IgnoreRule.parse(number, line)))
    rules = tuple(itertools.islice(parsed, _MAX_RULES))
    if not rules:
        return None
    base = folder if folder.endswith(os.sep) else folder + os.sep
    return IgnoreFile(path, base, rules, NameMatcher(rule.parts[-1] for rule in rules))


def _read_start(path: str) -> bytes:
    """Read the start of a regular file; nothing of a pipe or device, nor through an ignore file that is a link."""
    no_follow = getattr(os, "O_NOFOLLOW", 0) if Path(path).name in IGNORE_FILES else 0
    try:
        descriptor = os.open(path, _OPEN_FLAGS | no_follow)
        with os.fdopen(descriptor, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return file.read(_MAX_FILE_BYTES) if is_regular else b""
    except OSError:
        return b""


def git_folder(repository: str) -> Path:
    """Return where git keeps a repository's data: `.git`, or the folder that a file of this name points to."""
    path = Path(repository, GIT)
    try:
        if path.is_file():
            path = Path(repository, _read_path(path).partition("gitdir:")[2].strip())
            common = _read_path(path / "commondir").strip()  # of a worktree: the repository that it belongs to
            return path / common if common else path
    except OSError:
        pass
    return path


def _read_path(file: Path) -> str:
    """Read a path from a small file; empty if there is none."""
    text = _read_start(str(file))[:_MAX_RULE_CHARACTERS].decode("utf-8", errors="surrogateescape")
    return "" if "\0" in text else text


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

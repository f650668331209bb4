"""Ignore files -> which paths below them are left out, as git decides it. Knows no source code and no tables.

The rules of `.gitignore` end where a repository inside the repository begins; those of `.spdignore` do not.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from ngram_builders.sources.globs import Glob, in_turn, star_runs

GIT = ".git"
IGNORE_FILES = (".gitignore", ".spdignore")
FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_LARGEST = 1 << 20  # bytes of an ignore file that are read
MOST_RULES, LONGEST_RULE = 10_000, 4_096  # rules of a file, and characters of a rule, that are followed
FEW_STARS = 2  # with more, pathspec's expressions take a power of a name's length, which may be hours
_PLAIN_BRACKETS = re.compile(r"\[[^][/\\]*\]")


class Glimpse:
    """Whether a name can match one of many globs at all: quicker than asking each, and never a wrong no."""

    def __init__(self, globs: Iterable[str]) -> None:
        names, starts, ends = set(), set(), set()
        others: set[tuple[str, ...]] = set()
        for glob in globs:
            rough = _PLAIN_BRACKETS.sub("*", glob).replace("?", "*")
            parts = ["", ""] if any(letter in rough for letter in "[]\\") else rough.split("*")
            if len(parts) == 1:
                names.add(rough)
            elif not any(parts[1:]):
                starts.add(parts[0])
            elif len(parts) == 2 and not parts[0]:
                ends.add(parts[1])
            else:
                others.add(tuple(map(re.escape, parts)))
        self.names, self.starts, self.ends = frozenset(names), tuple(starts), tuple(ends)
        groups = itertools.accumulate((len(parts) - 1 for parts in sorted(others)), initial=1)
        each = [in_turn(parts, first) for parts, first in zip(sorted(others), groups, strict=False)]
        self.others = re.compile("|".join(each), re.DOTALL) if each else None

    def __call__(self, name: str) -> bool:
        """Whether to look closer."""
        return (
            name in self.names
            or name.endswith(self.ends)
            or name.startswith(self.starts)
            or (self.others is not None and self.others.match(name) is not None)
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file. pathspec reads its glob; whether it is about a path itself is decided here."""

    number: int  # of the line
    text: str
    takes_back: bool
    folders_only: bool
    glob: str
    spec: GitIgnoreSpec | Glob  # of the glob alone

    @classmethod
    def of(cls, number: int, line: str) -> Rule | None:
        """A line as a rule, None if it is none."""
        text = line.rstrip() + " " * line.rstrip().endswith("\\")
        glob = text.removeprefix("!").rstrip("/")
        if not glob.strip() or line.startswith("#") or len(line) > LONGEST_RULE:
            return None
        spec: GitIgnoreSpec | Glob
        try:
            spec = GitIgnoreSpec.from_lines([f"!{glob}"])  # the mark keeps a glob with # from being a comment
            if star_runs(glob) > FEW_STARS:
                spec = Glob(glob)
        except (ValueError, re.error):
            return None
        return cls(number, text, text.startswith("!"), text.endswith("/"), glob, spec)

    @property
    def last_part(self) -> str:
        """The glob that the last name of a path must fit for this rule to be about it."""
        part = _PLAIN_BRACKETS.sub("*", self.glob)
        return "*" if any(letter in part for letter in "[]\\") else part.rpartition("/")[2] or "*"

    def matches(self, path: str, name: str, is_folder: bool) -> bool:
        """Whether the rule is about the path, not only about a folder above it."""
        if self.folders_only and not is_folder:
            return False
        if "/" not in self.glob:
            return self.fits(name)
        return self.fits(path) and (self.glob.endswith("/**") or not self.fits(path.rpartition("/")[0]))

    def fits(self, path: str) -> bool:
        """Whether the path or one above it fits the glob."""
        if isinstance(self.spec, Glob):
            return self.spec.fits(path)
        return self.spec.check_file(path).include is not None


@dataclass(frozen=True, slots=True)
class Layer:
    """The rules of one ignore file."""

    file: str
    base: str  # paths are matched from here, a separator at its end
    rules: tuple[Rule, ...]
    glimpse: Glimpse

    def last_match(self, path: str, name: str, is_folder: bool) -> Rule | None:
        """The last rule about the path, which is the one that decides."""
        if not self.glimpse(name):
            return None
        relative = path[len(self.base) :].replace(os.sep, "/")
        return next((rule for rule in reversed(self.rules) if rule.matches(relative, name, is_folder)), None)


@dataclass(frozen=True, slots=True)
class Ignores:
    """The ignore files in force in one folder, by kind, innermost first; the first that has a rule decides."""

    layers: tuple[tuple[Layer, ...], ...] = ((),) * len(IGNORE_FILES)

    def enter(self, folder: str, names: Collection[str]) -> Ignores:
        """The rules in force inside a folder that holds these names."""
        inner = list(self.layers)
        if GIT in names:
            exclude = _read_layer(str(git_folder(folder) / "info" / "exclude"), folder)
            inner[0] = (exclude,) if exclude else ()
        for kind, name in enumerate(IGNORE_FILES):
            if name in names and (layer := _read_layer(os.path.join(folder, name), folder)):  # noqa: PTH118
                inner[kind] = (layer, *inner[kind])
        return self if inner == list(self.layers) else Ignores(tuple(inner))

    def fault(self, path: str, name: str, is_folder: bool = False) -> str | None:
        """Which kind of ignore file excludes the path; .spdignore cannot bring back what git ignores."""
        decided = self.decide(path, name, is_folder)
        return None if decided is None else f"ignored by {decided[0]}"

    def rule(self, path: str, name: str, is_folder: bool = False) -> str | None:
        """Where the rule stands that excludes the path, as file:line: text."""
        decided = self.decide(path, name, is_folder)
        if decided is None:
            return None
        _, layer, rule = decided
        return f"{layer.file}:{rule.number}: {rule.text}"

    def decide(self, path: str, name: str, is_folder: bool) -> tuple[str, Layer, Rule] | None:
        """The kind of ignore file that excludes the path, the file and its rule."""
        for kind, layers in zip(IGNORE_FILES, self.layers, strict=True):
            for layer in layers:
                if (rule := layer.last_match(path, name, is_folder)) is not None:
                    if not rule.takes_back:
                        return kind, layer, rule
                    break
        return None


def _read_layer(file: str, folder: str) -> Layer | None:
    """The rules of one ignore file for the paths below a folder, None if there are none."""
    lines = _read_rules(file).decode("utf-8-sig", errors="replace").splitlines()
    every = (rule for number, line in enumerate(lines, 1) if (rule := Rule.of(number, line)))
    rules = tuple(itertools.islice(every, MOST_RULES))
    if not rules:
        return None
    base = folder if folder.endswith(os.sep) else folder + os.sep
    return Layer(file, base, rules, Glimpse(rule.last_part for rule in rules))


def _read_rules(file: str) -> bytes:
    """What an ignore file says at its start; nothing if it is no plain file, or a link in the tree."""
    nofollow = getattr(os, "O_NOFOLLOW", 0) if Path(file).name in IGNORE_FILES else 0
    try:
        descriptor = os.open(file, FLAGS | nofollow)
        with os.fdopen(descriptor, "rb") as opened:
            plain = stat.S_ISREG(os.fstat(descriptor).st_mode)  # reading a pipe would wait, a device never ends
            return opened.read(_LARGEST) if plain else b""
    except OSError:
        return b""


def git_folder(repository: str) -> Path:
    """Where git keeps what it knows of a repository: `.git`, or the place that a file of this name tells."""
    place = Path(repository, GIT)
    try:
        if place.is_file():
            place = Path(repository, _path_in(place).partition("gitdir:")[2].strip())
            common = _path_in(place / "commondir").strip()  # of a worktree: the repository that it is a tree of
            return place / common if common else place
    except OSError:
        pass
    return place


def _path_in(file: Path) -> str:
    """The path that a small file tells; nothing if there is no such file."""
    told = _read_rules(str(file))[:LONGEST_RULE].decode("utf-8", errors="surrogateescape")
    return "" if "\0" in told else told


def outer_ignores(top: str, markers: Sequence[str]) -> Ignores:
    """The rules that reach into top from the repository around it; markers are the names worth a look."""
    ignores = Ignores()
    around = [str(folder) for folder in Path(top).parents]
    repository = next((folder for folder in (top, *around) if os.path.lexists(Path(folder, GIT))), None)
    if repository is None or repository == top:
        return ignores
    for folder in reversed(around[: around.index(repository) + 1]):
        ignores = ignores.enter(folder, [name for name in markers if os.path.lexists(Path(folder, name))])
    return ignores

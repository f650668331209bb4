"""Repositories' folders -> the files that are source by name, and why each other one is skipped.

Decides by name, size and ignore rules; reads no source. A path is a string here, as the system has it: a name that
is not UTF-8 holds surrogates, and `display_path` makes it printable.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

from ngram_builders.errors import UserError
from ngram_builders.sources.filters import SECRET, UNREADABLE, check_status, read_source_text
from ngram_builders.sources.git_repository import GIT, git_folder
from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.name_rules import (
    ENVIRONMENT,
    INTERNAL,
    PACKAGE,
    SYMLINK,
    WORKTREE,
    check_file_name,
    check_folder_content,
)
from ngram_builders.sources.rules.ignores import RULE_FILES, Exclusion, Ignores, outer_ignores
from ngram_builders.sources.rules.selection import EVERYTHING, Selection

_OTHER_LANGUAGE = "other language"
_MARKERS = (GIT, *RULE_FILES, ENVIRONMENT, PACKAGE)  # names that say something of the folder they are in


class SourceFile(NamedTuple):
    """A file that is source by its name, and its state on disk."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The source files of repositories in a stable order, and what is skipped; a skipped folder is one entry."""

    files: list[SourceFile]
    skipped: dict[str, str]  # path -> reason

    def count_skipped(self) -> Counter[str]:
        """Count what is skipped by reason, but for git's own; a folder counts as one."""
        return Counter(reason for reason in self.skipped.values() if reason != INTERNAL)


def survey(*roots: Path, selection: Selection = EVERYTHING) -> Survey:
    """Sort every file below the roots, each once, into source or skipped, by its name and size; reads none.

    What is skipped below one root counts if another root names it.
    """
    files: dict[str, SourceFile] = {}
    skipped: dict[str, str] = {}
    for top in sorted({str(_resolve_folder(root)) for root in roots}):
        for path, result in walk_sources(top, selection):
            if isinstance(result, Exclusion):
                skipped[path] = result.reason
            else:
                files[path] = result
    for path in skipped.keys() & files.keys():
        del skipped[path]
    return Survey([files[path] for path in sorted(files, key=os.fsencode)], skipped)


def walk_sources(
    top: str, selection: Selection = EVERYTHING, *, only: Collection[str] | None = None
) -> Iterator[tuple[str, SourceFile | Exclusion]]:
    """Yield every file below `top`, or why it is skipped; a folder skipped as a whole is one entry.

    The ignore files of a repository around it count. only: the paths to look at.
    """
    pending = [(top, outer_ignores(top, _MARKERS, selection))]
    while pending:
        folder, outer = pending.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            yield folder, Exclusion(UNREADABLE)
            continue
        names = {entry.name for entry in entries}
        why = _check_folder_content(folder, names, outer.in_git, top) if folder != top else None
        if why and not outer.includes(folder, why.reason):
            yield folder, why
            continue
        ignores = outer.enter(folder, names)
        for entry in entries if only is None else (entry for entry in entries if entry.path in only):
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path, _inspect_file(entry, ignores, selection.languages)
            elif isinstance(inner := ignores.enter_named(entry.path, entry.name), Exclusion):
                yield entry.path, inner
            else:
                pending.append((entry.path, inner))


def skip_reason(path: Path, root: Path, selection: Selection = EVERYTHING) -> str | None:
    """Return why this file of the repository is skipped; None if it counts as source."""
    found = explain_skipped(path, root, selection)
    return found and found.reason


def explain_skipped(path: Path, root: Path, selection: Selection = EVERYTHING) -> Exclusion | None:
    """Return why this file of the repository is skipped; None if it counts as source."""
    top = _resolve_folder(root)
    # Only the parent is resolved: a symbolic link counts as a link, not as what it points to.
    file = path.parent.resolve() / path.name
    if top not in file.parents:
        raise UserError(f"{display_path(path)} is not in {display_path(top)}; name a file of that repository")
    if not os.path.lexists(file):
        raise UserError(f"no such file: {display_path(path)}; check the name")
    for _, found in walk_sources(str(top), selection, only={str(file), *map(str, file.parents)}):
        if isinstance(found, Exclusion):
            return found
    reason = read_source_text(str(file))[1]
    return Exclusion(reason) if reason else None


def _check_folder_content(folder: str, names: Collection[str], in_git: bool, top: str) -> Exclusion | None:
    """Return why nothing in a folder that holds these names counts, or None."""
    if reason := check_folder_content(os.path.basename(folder), names, in_git=in_git):  # noqa: PTH119
        return Exclusion(reason)
    if GIT in names and os.path.isfile(os.path.join(folder, GIT)):  # noqa: PTH113, PTH118
        # A worktree holds the files of a repository once more; a submodule's git folder has another name.
        main = git_folder(folder).resolve()
        if main.name == GIT and main.is_relative_to(top) and main.is_dir():
            return Exclusion(WORKTREE)
    return None


def _inspect_file(
    entry: os.DirEntry[str], ignores: Ignores, languages: frozenset[str] | None
) -> SourceFile | Exclusion:
    """Return a source file's state, or why it is skipped; its name decides first, its content is not read."""
    by_name = check_file_name(entry.path, entry.name, languages)
    if entry.is_symlink() and by_name != SECRET:
        by_name = SYMLINK
    if excluded := ignores.find(entry.path, by_name):
        return excluded
    if languages is not None and language_of(entry.name, languages) not in languages:
        return Exclusion(_OTHER_LANGUAGE)
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return Exclusion(UNREADABLE)
    if reason := check_status(status, entry.path):
        return Exclusion(reason)
    return SourceFile(entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def display_path(path: str | PurePath) -> str:
    """Return a path as it can be printed on one line, whatever bytes its name has."""
    shown = os.fsencode(path).decode("utf-8", errors="replace")
    return shown.translate({ord(char): repr(char)[1:-1] for char in "\n\r\t"})


def _resolve_folder(root: Path) -> Path:
    """Return the real path of an existing folder."""
    if not root.is_dir():
        problem = "is a file, not a folder" if root.exists() else "does not exist"
        corpus = ", or give it with --corpus" if root.exists() else ""
        raise UserError(f"{display_path(root)} {problem}; name the folder of a repository{corpus}")
    return root.resolve()

"""Repositories' folders -> the files that are source by name, and why each other one is skipped.

Decides by name, size and ignore rules; reads no source. A path is a string here, as the system has it: a name that
is not UTF-8 holds surrogates, and `display_path` makes it printable.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

from ngram_builders.errors import UserError
from ngram_builders.sources.filters import GENERATED, MINIFIED, SECRET, UNREADABLE, check_status, read_source_text
from ngram_builders.sources.globs import NameMatcher
from ngram_builders.sources.ignores import GIT, IGNORE_FILES, Ignores, git_folder, outer_ignores
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.sources.secret_files import is_secret

_SYMLINK = "symbolic link"
_FOLDER = "version control, dependency or build folder"
_WORKTREE = "another worktree of a repository"
NOT_SOURCE = "not source code"
OTHER_LANGUAGE = "other language"

_FOLDERS = """
    .git .hg .svn .bzr .jj CVS node_modules bower_components jspm_packages .yarn .pnpm-store
    .venv venv virtualenv __pycache__ site-packages .tox .nox .eggs .mypy_cache .ruff_cache .pytest_cache
    .ipynb_checkpoints dist build _build target vendor vendored _vendor _vendored third_party third-party
    thirdparty Pods .gradle .next .nuxt .svelte-kit .terraform .cache .idea DerivedData
"""
_GENERATED_NAMES = """
    *_pb2.py *_pb2.pyi *_pb2_grpc.py *.pb.go *.pb.cc *.pb.h *_pb.js *_pb.d.ts *.g.dart
    *.freezed.dart *.g.cs *.designer.cs *.generated.* *_generated.*
    *.lock *-lock.json *-lock.yaml go.sum npm-shrinkwrap.json
"""
_SKIPPED_FOLDERS = frozenset(_FOLDERS.split())
_SKIPPED_FOLDER_ENDS = (".egg-info", ".dist-info", ".xcodeproj")
_is_generated_name = NameMatcher(_GENERATED_NAMES.split())
_is_minified_name = NameMatcher(("*.min.*", "*-min.js", "*.bundle.js"))
_MARKERS = (GIT, *IGNORE_FILES, "pyvenv.cfg")  # names that say something of the folder they are in


class SourceFile(NamedTuple):
    """A file that is source by its name, and its state on disk."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> SourceFile:
        """A file in this state."""
        return cls(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class Survey:
    """The source files of repositories in a stable order, and what is skipped; a skipped folder is one entry."""

    files: list[SourceFile]
    skipped: dict[str, str]  # path -> reason

    @property
    def paths(self) -> list[Path]:
        """The paths of the source files."""
        return [Path(file.path) for file in self.files]

    def count_skipped(self) -> Counter[str]:
        """Count the skipped entries by reason."""
        return Counter(self.skipped.values())


def survey(*roots: Path, language: str | None = None) -> Survey:
    """Sort every file below the roots, each once, into source or skipped, by its name and size; reads none.

    What is skipped below one root counts if another root names it.
    """
    languages = None if language is None else related_languages(language)
    files: dict[str, SourceFile] = {}
    skipped: dict[str, str] = {}
    for top in sorted({str(_resolve_folder(root)) for root in roots}):
        for path, result in walk_sources(top, languages):
            if isinstance(result, str):
                skipped[path] = result
            else:
                files[path] = result
    for path in skipped.keys() & files.keys():
        del skipped[path]
    return Survey([files[path] for path in sorted(files, key=os.fsencode)], skipped)


def walk_sources(
    top: str, languages: frozenset[str] | None = None, *, with_outer_ignores: bool = True
) -> Iterator[tuple[str, SourceFile | str]]:
    """Yield every file below `top`, or why it is skipped; a folder skipped as a whole is one entry.

    with_outer_ignores: whether the ignore files of a repository around it count.
    """
    pending = [(top, outer_ignores(top, _MARKERS) if with_outer_ignores else Ignores())]
    while pending:
        folder, outer = pending.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            yield folder, UNREADABLE
            continue
        names = {entry.name for entry in entries}
        if folder != top and (reason := _check_folder_content(folder, names, top)) is not None:
            yield folder, reason
            continue
        ignores = outer.enter(folder, names)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path, _inspect_file(entry, ignores, languages)
            elif (reason := _check_folder_name(entry.path, entry.name, ignores)[0]) is not None:
                yield entry.path, reason
            else:
                pending.append((entry.path, ignores))


def skip_reason(path: Path, root: Path) -> str | None:
    """Return why this file of the repository is skipped; None if it counts as source."""
    return explain_skipped(path, root)[0]


def explain_skipped(path: Path, root: Path) -> tuple[str | None, str | None]:
    """Return why this file of the repository is skipped, None if it is not; and the ignore rule, if any."""
    top = _resolve_folder(root)
    # Only the parent is resolved: a symbolic link counts as a link, not as what it points to.
    file = path.parent.resolve() / path.name
    if top not in file.parents:
        raise UserError(f"{display_path(path)} is not in {display_path(top)}; name a file of that repository")
    if not os.path.lexists(file):
        raise UserError(f"no such file: {display_path(path)}; check the name")
    folder, ignores = str(top), outer_ignores(str(top), _MARKERS)
    for part in (*file.relative_to(top).parts[:-1], ""):
        names = [name for name in _MARKERS if os.path.lexists(Path(folder, name))]
        if folder != str(top) and (reason := _check_folder_content(folder, names, str(top))) is not None:
            return reason, None
        ignores = ignores.enter(folder, names)
        if part:
            folder = str(Path(folder, part))
            skipped = _check_folder_name(folder, part, ignores)
            if skipped[0] is not None:
                return skipped
    if (reason := _check_name(str(file), file.name.lower(), file.is_symlink())) is not None:
        return reason, None
    return ignores.find(str(file), file.name) or (read_source_text(str(file))[1], None)


def _check_folder_name(path: str, name: str, ignores: Ignores) -> tuple[str | None, str | None]:
    """Return why nothing below a folder of this name counts, or None; and the ignore rule, if one says so."""
    if name in _SKIPPED_FOLDERS or name.endswith(_SKIPPED_FOLDER_ENDS):
        return _FOLDER, None
    return ignores.find(path, name, is_folder=True) or (None, None)


def _check_folder_content(folder: str, names: Iterable[str], top: str) -> str | None:
    """Return why nothing below a folder that holds these names counts, or None."""
    if "pyvenv.cfg" in names:  # a virtual environment under any name
        return _FOLDER
    if GIT in names and os.path.isfile(os.path.join(folder, GIT)):  # noqa: PTH113, PTH118
        # A worktree holds the files of a repository once more; a submodule's git folder has another name.
        main = git_folder(folder).resolve()
        return _WORKTREE if main.name == GIT and main.is_relative_to(top) else None
    return None


def _inspect_file(entry: os.DirEntry[str], ignores: Ignores, languages: frozenset[str] | None) -> SourceFile | str:
    """Return a source file's state, or why it is skipped; its name decides first, its content is not read."""
    if (reason := _check_name(entry.path, entry.name.lower(), entry.is_symlink())) is not None:
        return reason
    if (ignored := ignores.find(entry.path, entry.name)) is not None:
        return ignored.reason
    if languages is not None and language_of(entry.name) not in languages:
        return OTHER_LANGUAGE
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return UNREADABLE
    return check_status(status) or SourceFile.of(entry.path, status)


def _check_name(path: str, name: str, is_link: bool) -> str | None:
    """Return why a file at this path, of this lower-case name, is skipped, or None."""
    if is_secret(path):
        return SECRET
    if is_link:
        return _SYMLINK
    if _is_minified_name(name):
        return MINIFIED
    if _is_generated_name(name):
        return GENERATED
    return NOT_SOURCE if language_of(name) is None else None


def display_path(path: str | PurePath) -> str:
    """Return a path as it can be printed, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", errors="replace")


def _resolve_folder(root: Path) -> Path:
    """Return the real path of an existing folder."""
    if not root.is_dir():
        problem = "is a file, not a folder" if root.exists() else "does not exist"
        raise UserError(f"{display_path(root)} {problem}; name the folder of a repository")
    return root.resolve()

"""Repositories' folders -> the files that are source by their names, and why each other one is not.

Decides by name, size and ignore rules; reads no source. A path is a string here, as the system has it: a name that
is not UTF-8 holds surrogates, and `shown` makes it printable.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import NamedTuple

from ngram_builders.errors import UserError
from ngram_builders.sources.filters import (
    GENERATED,
    MINIFIED,
    SECRET,
    UNREADABLE,
    source_of,
    status_fault,
)
from ngram_builders.sources.ignores import GIT, IGNORE_FILES, Glimpse, Ignores, git_folder, outer_ignores
from ngram_builders.sources.secret_files import SECRET_NAMES, is_secret, may_be_secret

_SYMLINK = "symbolic link"
_FOLDER = "version control, dependency or build folder"
_WORKTREE = "another worktree of a repository"
NOT_SOURCE = "not source code"
OTHER_LANGUAGE = "other language"


def words(text: str) -> tuple[str, ...]:
    """The words of a table's row."""
    return tuple(text.split())


LANGUAGES: dict[str, str] = {
    extension: language
    for language, extensions in {
        "python": "py pyi pyw pyx pxd",
        "javascript": "js mjs cjs",
        "javascriptreact": "jsx",
        "typescript": "ts mts cts",
        "typescriptreact": "tsx",
        "go": "go",
        "rust": "rs",
        "java": "java",
        "c": "c h",
        "cpp": "cpp cc cxx c++ hpp hh hxx h++ ipp inl",
        "cuda-cpp": "cu cuh",
        "csharp": "cs csx",
        "ruby": "rb rake gemspec",
        "php": "php phtml",
        "shellscript": "sh bash zsh ksh bats",
        "lua": "lua",
        "kotlin": "kt kts",
        "scala": "scala sc",
        "swift": "swift",
        "objective-c": "m",
        "objective-cpp": "mm",
        "dart": "dart",
        "r": "r",
        "julia": "jl",
        "perl": "pl pm",
        "elixir": "ex exs",
        "erlang": "erl hrl",
        "haskell": "hs",
        "ocaml": "ml mli",
        "fsharp": "fs fsi fsx",
        "clojure": "clj cljs cljc",
        "groovy": "groovy gradle",
        "powershell": "ps1 psm1",
        "zig": "zig",
        "nim": "nim",
        "sql": "sql",
        "vue": "vue",
        "svelte": "svelte",
        "css": "css",
        "scss": "scss",
        "less": "less",
        "html": "html htm",
        "terraform": "tf",
        "proto": "proto",
    }.items()
    for extension in words(extensions)
}
NAMED: dict[str, str] = {
    "dockerfile": "dockerfile",
    "makefile": "makefile",
    "gnumakefile": "makefile",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "cmakelists.txt": "cmake",
}
_KIN: tuple[frozenset[str], ...] = (
    frozenset({"javascript", "javascriptreact", "typescript", "typescriptreact", "vue", "svelte"}),
    frozenset({"c", "cpp", "cuda-cpp", "objective-c", "objective-cpp"}),
    frozenset({"css", "scss", "less"}),
)

_SKIPPED_FOLDERS = frozenset(
    words(
        ".git .hg .svn .bzr .jj CVS node_modules bower_components jspm_packages .yarn .pnpm-store "
        ".venv venv virtualenv __pycache__ site-packages .tox .nox .eggs .mypy_cache .ruff_cache .pytest_cache "
        ".ipynb_checkpoints dist build _build target vendor vendored _vendor _vendored third_party third-party "
        "thirdparty Pods .gradle .next .nuxt .svelte-kit .terraform .cache .idea DerivedData"
    )
)
_SKIPPED_FOLDER_ENDS = (".egg-info", ".dist-info", ".xcodeproj")
_GENERATED_NAMES = words(
    "*_pb2.py *_pb2.pyi *_pb2_grpc.py *.pb.go *.pb.cc *.pb.h *_pb.js *_pb.d.ts *.g.dart "
    "*.freezed.dart *.g.cs *.designer.cs *.generated.* *_generated.* "
    "*.lock *-lock.json *-lock.yaml go.sum npm-shrinkwrap.json"
)
_MINIFIED_NAMES = ("*.min.*", "*-min.js", "*.bundle.js")
_MARKERS = (GIT, *IGNORE_FILES, "pyvenv.cfg")  # what a folder holds that says something of the folder
_SUSPECT = Glimpse((*SECRET_NAMES, *_MINIFIED_NAMES, *_GENERATED_NAMES))


class Found(NamedTuple):
    """A file that is source by its name, and the state it was in."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What repositories offer: files in a stable order; the rest with the reason, a skipped folder as one."""

    found: list[Found]
    left_out: dict[str, str]  # path -> reason

    @property
    def sources(self) -> list[Path]:
        """The files that may be source."""
        return [Path(one.path) for one in self.found]

    def reasons(self) -> Counter[str]:
        """How many were left out for each reason."""
        return Counter(self.left_out.values())


def survey(*roots: Path, language: str | None = None) -> Survey:
    """Sort every file below the roots, each once, into source or left out, by its name and size; reads none.

    What one root leaves out and another one names counts.
    """
    wanted = None if language is None else akin(language)
    found: dict[str, Found] = {}
    left_out: dict[str, str] = {}
    for top in sorted({str(_resolve_folder(root)) for root in roots}):
        for path, verdict in walk(top, wanted):
            if isinstance(verdict, str):
                left_out[path] = verdict
            else:
                found[path] = verdict
    for path in left_out.keys() & found.keys():
        del left_out[path]
    return Survey([found[path] for path in sorted(found, key=os.fsencode)], left_out)


def walk(top: str, wanted: frozenset[str] | None = None) -> Iterator[tuple[str, Found | str]]:
    """Every file below top with its state or its fault; a folder left out as a whole comes as one entry."""
    waiting = [(top, outer_ignores(top, _MARKERS))]
    while waiting:
        folder, around = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            yield folder, UNREADABLE
            continue
        names = {entry.name for entry in entries}
        if folder != top and (fault := _inner_fault(folder, names, top)) is not None:
            yield folder, fault
            continue
        ignores = around.enter(folder, names)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path, _file_verdict(entry, ignores, wanted)
            elif (fault := _outer_fault(entry.path, entry.name, ignores)) is not None:
                yield entry.path, fault
            else:
                waiting.append((entry.path, ignores))


def _outer_fault(path: str, name: str, ignores: Ignores) -> str | None:
    """Why nothing below this folder counts by its name, or None."""
    if name in _SKIPPED_FOLDERS or name.endswith(_SKIPPED_FOLDER_ENDS):
        return _FOLDER
    return ignores.fault(path, name, is_folder=True)


def _inner_fault(folder: str, names: Iterable[str], top: str) -> str | None:
    """Why nothing below this folder counts by what it holds, or None."""
    if "pyvenv.cfg" in names:  # a virtual environment under any name
        return _FOLDER
    if GIT in names and os.path.isfile(os.path.join(folder, GIT)):  # noqa: PTH113, PTH118
        # A worktree holds the files of a repository once more; a submodule's git folder has another name.
        main = git_folder(folder).resolve()
        return _WORKTREE if main.name == GIT and main.is_relative_to(top) else None
    return None


def _file_verdict(entry: os.DirEntry[str], ignores: Ignores, wanted: frozenset[str] | None) -> Found | str:
    """A file's state, or why it does not count. Its name is asked first, and its content not at all."""
    if (fault := _name_fault(entry.path, entry.name.lower(), entry.is_symlink())) is not None:
        return fault
    if (ignored := ignores.fault(entry.path, entry.name)) is not None:
        return ignored
    if wanted is not None and language_of_name(entry.name) not in wanted:
        return OTHER_LANGUAGE
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return UNREADABLE
    return status_fault(status) or Found(
        entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    )


def _name_fault(path: str, name: str, is_link: bool) -> str | None:
    """Why a file at this path, of this lower-case name, does not count, or None."""
    suspect = _SUSPECT(name)
    if (suspect or may_be_secret(path)) and is_secret(path):
        return SECRET
    if is_link:
        return _SYMLINK
    if suspect and matches(name, _MINIFIED_NAMES):
        return MINIFIED
    if suspect and matches(name, _GENERATED_NAMES):
        return GENERATED
    return NOT_SOURCE if language_of_name(name) is None else None


def reason(path: Path, root: Path) -> str | None:
    """Why this one file of the repository is left out; None when it counts as source."""
    return why(path, root)[0]


def why(path: Path, root: Path) -> tuple[str | None, str | None]:
    """Why this one file of the repository is left out, None if it is not; and the ignore rule that says so."""
    top = _resolve_folder(root)
    # Only the parent is resolved: a symbolic link must be judged as the link it is.
    file = path.parent.resolve() / path.name
    if top not in file.parents:
        raise UserError(f"expected a file below {top}, found {shown(path)}; name a file of that repository")
    if not os.path.lexists(file):
        raise UserError(f"no such file: {shown(path)}; check the name")
    folder, ignores = str(top), outer_ignores(str(top), _MARKERS)
    for part in (*file.relative_to(top).parts[:-1], ""):
        names = [name for name in _MARKERS if os.path.lexists(Path(folder, name))]
        if folder != str(top) and (fault := _inner_fault(folder, names, str(top))) is not None:
            return fault, None
        ignores = ignores.enter(folder, names)
        if part:
            folder = str(Path(folder, part))
            if (fault := _outer_fault(folder, part, ignores)) is not None:
                return fault, ignores.rule(folder, part, is_folder=True) if fault.startswith("ignored") else None
    if (fault := _name_fault(str(file), file.name.lower(), file.is_symlink())) is not None:
        return fault, None
    if (fault := ignores.fault(str(file), file.name)) is not None:
        return fault, ignores.rule(str(file), file.name)
    return source_of(str(file))[1], None


def language_of(path: PurePath) -> str | None:
    """The LSP language id a file name stands for, or None: app.tsx -> typescriptreact."""
    return language_of_name(path.name)


def language_of_name(name: str) -> str | None:
    """The same for a name or a path that is a string."""
    name = os.path.basename(name).lower()  # noqa: PTH119
    stem, dot, extension = name.rpartition(".")
    return NAMED.get(name) or (LANGUAGES.get(extension) if stem and dot else None)


def akin(language: str) -> frozenset[str]:
    """The languages whose code is written alike, itself included: typescript -> javascript, vue ..."""
    return next((kin for kin in _KIN if language in kin), frozenset({language}))


def shown(path: str | PurePath) -> str:
    """A path as it can be printed, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", errors="replace")


def _resolve_folder(root: Path) -> Path:
    """The real path of an existing folder."""
    if not root.is_dir():
        found = "a file" if root.exists() else "nothing"
        raise UserError(f"expected the folder of a repository, found {found} at {shown(root)}; name a folder")
    return root.resolve()


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a lower-case file name fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)

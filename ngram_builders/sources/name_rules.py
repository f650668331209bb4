"""The name of a file or folder -> whether nobody wrote by hand what is in it. Reads nothing.

The same rules for folders and for the rows of a corpus.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from ngram_builders.sources.filters import SECRET
from ngram_builders.sources.git_repository import GIT
from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.rules.globs import NameMatcher
from ngram_builders.sources.secret_files import is_secret
from ngram_builders.sources.unwritten import GENERATED, MINIFIED

INTERNAL = "version control or cache"
VENDORED = "vendored"
_INSTALLED = "installed"
SYMLINK = "symbolic link"
WORKTREE = "another worktree of a repository"
_BUILT = "build output"
_NOT_SOURCE = "not source code"
ENVIRONMENT = "pyvenv.cfg"  # in every virtual environment, whatever its name
PACKAGE = "__init__.py"

_INTERNAL_FOLDERS = """
    .git .hg .svn .bzr .jj CVS __pycache__ .tox .nox .mypy_cache .ruff_cache .pytest_cache .ipynb_checkpoints .idea
"""
_INSTALLED_FOLDERS = """
    node_modules bower_components jspm_packages .yarn .pnpm-store site-packages .eggs Pods .terraform
"""
_VENDORED_FOLDERS = """
    vendor vendored _vendor _vendored Godeps
    third_party third-party thirdparty ThirdParty 3rdparty 3rd_party 3rd-party
"""
_BUILT_FOLDERS = """
    .venv venv virtualenv dist build _build target .gradle .next .nuxt .svelte-kit .cache DerivedData
"""
# Here code with a licence of its own is vendored, and other code is not.
_DEPENDENCY_FOLDERS = frozenset(
    ("deps", "dependencies", "vendors", "extern", "external", "externals", "subprojects", "submodules")
)
_LICENCE = re.compile(r"(?:un)?licen[cs]es?|copying|copyright", re.IGNORECASE)
_INSTALLED_ENDS = (".dist-info", ".egg-info", ".xcodeproj")
_GENERATED_NAMES = """
    *_pb2.py *_pb2.pyi *_pb2_grpc.py *.pb.go *.pb.cc *.pb.h *_pb.js *_pb.d.ts *.g.dart
    *.freezed.dart *.g.cs *.designer.cs *.generated.* *_generated.*
    *.lock *-lock.json *-lock.yaml go.sum npm-shrinkwrap.json
"""
_BUILT_NAMES = frozenset(_BUILT_FOLDERS.split())
_REASON_BY_NAME = {
    name: reason
    for reason, names in (
        (INTERNAL, _INTERNAL_FOLDERS),
        (_INSTALLED, _INSTALLED_FOLDERS),
        (VENDORED, _VENDORED_FOLDERS),
    )
    for name in names.split()
}
_is_generated_name = NameMatcher(_GENERATED_NAMES.split())
_is_minified_name = NameMatcher(("*.min.*", "*-min.js", "*.bundle.js"))


def check_folder_name(name: str) -> str | None:
    """Return why nothing in a folder of this name counts, wherever it is; else None."""
    return _REASON_BY_NAME.get(name) or (_INSTALLED if name.endswith(_INSTALLED_ENDS) else None)


def check_folder_content(name: str, names: Collection[str], *, in_git: bool) -> str | None:
    """Return why nothing counts in a folder that holds these names; else None.

    A folder called `build` may be someone's source: a package, a repository, or what `.gitignore` does not ignore.
    """
    if ENVIRONMENT in names:
        return _INSTALLED
    is_source = in_git or PACKAGE in names or GIT in names
    return _BUILT if not is_source and name in _BUILT_NAMES else None


def _may_hold_dependencies(folders: Sequence[str]) -> bool:
    """Whether a folder, one in the other, is where people keep code of others beside their own."""
    return not _DEPENDENCY_FOLDERS.isdisjoint(folders)


def find_licence(folders: Sequence[str], names: Iterable[str]) -> str | None:
    """Return the licence among a folder's names, if it is one of dependencies. Example: deps/lua, COPYRIGHT."""
    if not _may_hold_dependencies(folders):
        return None
    licences = (name for name in names if _LICENCE.fullmatch(re.split("[.-]", name)[0]))
    return min((name for name in licences if language_of(name) is None), default=None)


def check_file_name(path: str, name: str, languages: Collection[str] | None = None) -> str | None:
    """Return why a file at this path, of this name, does not count; else None. languages: those asked for."""
    name = name.lower()
    if is_secret(path):
        return SECRET
    if _is_minified_name(name):
        return MINIFIED
    if _is_generated_name(name):
        return GENERATED
    return _NOT_SOURCE if language_of(name, languages) is None else None


def check_row_path(path: str, languages: Collection[str] | None = None) -> str | None:
    """Return why a row of a corpus with this path does not count; else None. It is taken to be in a repository."""
    *folders, name = path.replace("\\", "/").split("/")
    return next(filter(None, map(check_folder_name, folders)), None) or check_file_name(path, name, languages)

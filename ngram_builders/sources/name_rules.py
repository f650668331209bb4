"""The name of a file or folder -> whether nobody wrote by hand what is in it. Reads nothing."""

from __future__ import annotations

from collections.abc import Collection

from ngram_builders.sources.filters import GENERATED, MINIFIED, SECRET
from ngram_builders.sources.git_repository import GIT
from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.rules.rule_files import name_matcher
from ngram_builders.sources.secret_files import is_secret

INTERNAL = "version control or cache"
VENDORED = "vendored"
_INSTALLED = "installed"
SYMLINK = "symbolic link"
WORKTREE = "another worktree of a repository"
_NOT_SOURCE = "not source code"
ENVIRONMENT = "pyvenv.cfg"  # in every virtual environment, whatever its name
PACKAGE = "__init__.py"

_BUILT = "build output"
_NAMES_BY_REASON = {
    INTERNAL: ".git .hg .svn .bzr .jj CVS __pycache__ .tox .nox .mypy_cache .ruff_cache .pytest_cache "
    ".ipynb_checkpoints .idea",
    _INSTALLED: "node_modules bower_components jspm_packages .yarn .pnpm-store site-packages .eggs Pods "
    ".terraform",
    VENDORED: "vendor vendored _vendor _vendored Godeps third_party third-party thirdparty ThirdParty 3rdparty "
    "3rd_party 3rd-party",
    _BUILT: ".venv venv virtualenv dist build _build target .gradle .next .nuxt .svelte-kit .cache DerivedData",
}
_REASON_BY_NAME = {name: reason for reason, names in _NAMES_BY_REASON.items() for name in names.split()}
_INSTALLED_ENDS = (".dist-info", ".egg-info", ".xcodeproj")
_is_generated_name = name_matcher(
    "*_pb2.py *_pb2.pyi *_pb2_grpc.py *.pb.go *.pb.cc *.pb.h *_pb.js *_pb.d.ts *.g.dart *.freezed.dart *.g.cs "
    "*.designer.cs *.generated.* *_generated.* *.lock *-lock.json *-lock.yaml go.sum npm-shrinkwrap.json"
)
_is_minified_name = name_matcher("*.min.* *-min.js *.bundle.js")


def check_folder_name(name: str) -> str | None:
    """Return why nothing in a folder of this name counts, wherever it is; else None."""
    reason = _INSTALLED if name.endswith(_INSTALLED_ENDS) else _REASON_BY_NAME.get(name)
    return reason if reason != _BUILT else None


def check_folder_content(name: str, names: Collection[str], *, in_git: bool) -> str | None:
    """Return why nothing counts in a folder that holds these names; else None.

    A folder called `build` may be someone's source: a package, a repository, or what `.gitignore` does not ignore.
    """
    if ENVIRONMENT in names:
        return _INSTALLED
    is_source = in_git or PACKAGE in names or GIT in names
    return _BUILT if not is_source and _REASON_BY_NAME.get(name) == _BUILT else None


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


def check_row_path(path: str) -> str | None:
    """Return why a row of a corpus with this path does not count; else None. It is taken to be in a repository."""
    *folders, name = path.replace("\\", "/").split("/")
    return next(filter(None, map(check_folder_name, folders)), None) or check_file_name(path, name)

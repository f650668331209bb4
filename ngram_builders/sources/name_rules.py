"""The name of a file or folder -> whether nobody wrote by hand what is in it. Reads nothing.

The same rules for folders and for the rows of a corpus.
"""

from __future__ import annotations

from collections.abc import Collection

from ngram_builders.sources.filters import SECRET
from ngram_builders.sources.git_repository import GIT
from ngram_builders.sources.globs import NameMatcher
from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.secret_files import is_secret
from ngram_builders.sources.unwritten import GENERATED, MINIFIED

INTERNAL = "version control or cache"
_VENDORED = "vendored or installed"
_BUILT = "build output"
_NOT_SOURCE = "not source code"
ENVIRONMENT = "pyvenv.cfg"  # in every virtual environment, whatever its name
PACKAGE = "__init__.py"

_INTERNAL_FOLDERS = """
    .git .hg .svn .bzr .jj CVS __pycache__ .tox .nox .mypy_cache .ruff_cache .pytest_cache .ipynb_checkpoints .idea
"""
_VENDORED_FOLDERS = """
    node_modules bower_components jspm_packages .yarn .pnpm-store site-packages .eggs Pods .terraform Godeps
    vendor vendored _vendor _vendored third_party third-party thirdparty ThirdParty 3rdparty 3rd_party 3rd-party
"""
_BUILT_FOLDERS = """
    .venv venv virtualenv dist build _build target .gradle .next .nuxt .svelte-kit .cache DerivedData
"""
_VENDORED_ENDS = (".dist-info", ".egg-info", ".xcodeproj")
_GENERATED_NAMES = """
    *_pb2.py *_pb2.pyi *_pb2_grpc.py *.pb.go *.pb.cc *.pb.h *_pb.js *_pb.d.ts *.g.dart
    *.freezed.dart *.g.cs *.designer.cs *.generated.* *_generated.*
    *.lock *-lock.json *-lock.yaml go.sum npm-shrinkwrap.json
"""
_INTERNAL_NAMES, _VENDORED_NAMES, _BUILT_NAMES = (
    frozenset(names.split()) for names in (_INTERNAL_FOLDERS, _VENDORED_FOLDERS, _BUILT_FOLDERS)
)
_is_generated_name = NameMatcher(_GENERATED_NAMES.split())
_is_minified_name = NameMatcher(("*.min.*", "*-min.js", "*.bundle.js"))


def check_folder_name(name: str) -> str | None:
    """Return why nothing in a folder of this name counts, whether or not git tracks it; else None."""
    if name in _INTERNAL_NAMES:
        return INTERNAL
    return _VENDORED if name in _VENDORED_NAMES or name.endswith(_VENDORED_ENDS) else None


def check_folder_content(name: str, names: Collection[str], *, is_tracked: bool) -> str | None:
    """Return why nothing counts in a folder that holds these names; else None.

    A folder called `build` may be someone's source: git tracks it, or it is a package or a repository.
    """
    if ENVIRONMENT in names:
        return _VENDORED
    is_source = is_tracked or PACKAGE in names or GIT in names
    return _BUILT if not is_source and name in _BUILT_NAMES else None


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
    """Return why a row of a corpus with this path does not count; else None. The row is taken to be tracked."""
    *folders, name = path.replace("\\", "/").split("/")
    return next(filter(None, map(check_folder_name, folders)), None) or check_file_name(path, name, languages)

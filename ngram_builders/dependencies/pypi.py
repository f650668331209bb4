"""Python packages that a project's own files import, by the record of its environment."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from ngram_builders.dependencies.packages import Package, existing, folder_within, read_manifest
from ngram_builders.sources.discovery import SourceFile, walk_sources
from ngram_builders.sources.filters import read_source_text

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([A-Za-z_][\w.]*)[ \t]+import\b[ \t]*(\([^()]{0,4000}|[^\n#;]*)|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
_FIELD = re.compile(r"^(Name|Version): *([\w.!+-]+) *$", re.MULTILINE)
_MAX_FILES = 5_000  # of a project, read for their imports
_OWN = (".venv", "venv", ".conda", "env")  # where people have a project's environment
_OF_SHELL = ("VIRTUAL_ENV", "CONDA_PREFIX")
_MARKS = ("pyvenv.cfg", "conda-meta")


def find_pypi(project: Path, interpreter: str) -> Iterator[Package]:
    """Find what a project's files import, by the record of what its environment has installed."""
    site = _find_site_packages(project, interpreter)
    imported = _imported_modules(project) if site else set()
    for info in sorted(site.glob("*.dist-info")) if site and imported else []:
        fields = dict(_FIELD.findall(read_manifest(info / "METADATA").partition("\n\n")[0]))
        files = [line.partition(",")[0] for line in read_manifest(info / "RECORD").splitlines()]
        modules = [path for path in sorted(_top_modules(files)) if _is_imported(path, imported)]
        sources = existing([info.parent / path for path in modules])
        if sources and fields.keys() >= {"Name", "Version"}:
            yield Package("pypi", re.sub(r"[-_.]+", "-", fields["Name"]).lower(), fields["Version"], sources)


def _find_site_packages(project: Path, interpreter: str) -> Path | None:
    """Return where a project's packages are: the interpreter's, or else its own, or else the shell's."""
    for environment in _environments(project, interpreter):
        if any((environment / mark).exists() for mark in _MARKS):
            for site in (
                *sorted(environment.glob("lib/python3*/site-packages")),
                environment / "Lib" / "site-packages",
            ):
                if found := folder_within(site, environment):
                    return found
    return None


def _environments(project: Path, interpreter: str) -> Iterator[Path]:
    """Yield folders that may be the environment, the one that counts first."""
    if interpreter and Path(interpreter).is_absolute():
        yield from list(Path(interpreter).parents)[:2]  # Windows has an environment's interpreter at its top
    yield from filter(None, (folder_within(project / name, project) for name in _OWN))
    yield from (Path(folder) for name in _OF_SHELL if (folder := os.environ.get(name)))


def _top_modules(files: Iterable[str]) -> set[str]:
    """The paths of the outermost modules among files: of a part of a namespace, that part.

    Example: `google/cloud/storage/__init__.py` and `google/cloud/storage/blob.py` -> `google/cloud/storage`.
    """
    paths = [PurePosixPath(file) for file in files if file.endswith(".py")]
    packages = {path.parent for path in paths if path.name == "__init__.py"}
    return {str(next((one for one in (*reversed(path.parents), path) if one in packages), path)) for path in paths}


def _is_imported(path: str, imported: set[str]) -> bool:
    """Whether a module or something in it is imported."""
    name = path.removesuffix(".py").replace("/", ".")
    is_module = all(part.isidentifier() for part in name.split("."))
    return is_module and any(one == name or one.startswith(f"{name}.") for one in imported)


def _imported_modules(project: Path) -> set[str]:
    """The modules that a project's files import and that are not its own."""
    found = (path for path, source in walk_sources(str(project)) if isinstance(source, SourceFile))
    files = [Path(path) for path in islice((path for path in found if path.endswith(".py")), _MAX_FILES)]
    in_folder: dict[Path, set[str]] = defaultdict(set)
    for file in files:
        for path in (file, *file.parents):
            if path == project:
                break
            in_folder[path.parent].add(path.stem)
    modules: set[str] = set()
    for file in files:
        beside = in_folder[file.parent]
        is_script = "__init__" not in beside  # which imports what lies beside it; a package's module does not
        own = in_folder[project] | in_folder[project / "src"] | (beside if is_script else set())
        imported = _imports(read_source_text(str(file))[0])
        modules |= {name for name in imported if name.partition(".")[0] not in own}
    return modules


def _imports(text: str) -> set[str]:
    """What a text imports, modules or names in them. Example: `from a.b import c as d` -> a.b, a.b.c."""
    found: set[str] = set()
    for module, names, modules in _IMPORT.findall(text):
        listed = re.sub(r"#[^\n]*", "", names or modules).split(",")
        several = [match.group() for name in listed if (match := _MODULE.search(name))]
        found |= {f"{module}.{name}" for name in several} | {module} if module else set(several)
    return found

"""Python packages that a project's own files import, by the record of its environment."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ngram_builders.dependencies.packages import Package, existing, folder_within, read_manifest
from ngram_builders.sources.discovery import SourceFile, walk_sources
from ngram_builders.sources.filters import read_source_text

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([A-Za-z_]\w*)[\w.]*[ \t]+import\b|import[ \t]+([^\n#;]+))", re.MULTILINE
)
_MODULE = re.compile(r"[A-Za-z_]\w*")
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
        names = {line.partition("/")[0].partition(",")[0] for line in read_manifest(info / "RECORD").splitlines()}
        modules = [name for name in sorted(names) if _is_imported(name, imported)]
        sources = existing([info.parent / name for name in modules])
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


def _is_imported(name: str, imported: set[str]) -> bool:
    """Whether an installed file or folder at the top is a module that is imported."""
    return name.removesuffix(".py") in imported and _MODULE.fullmatch(name.removesuffix(".py")) is not None


def _imported_modules(project: Path) -> set[str]:
    """The top-level modules that a project's files import and that are not its own."""
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
        modules |= _imports(read_source_text(str(file))[0]) - own
    return modules


def _imports(text: str) -> set[str]:
    """The top-level modules that a text imports. Example: `import a.b as c, d` -> a, d."""
    modules = set()
    for module, several in _IMPORT.findall(text):
        names = [module] if module else (name.strip() for name in several.split(","))
        modules |= {match.group() for name in names if (match := _MODULE.match(name))}
    return modules

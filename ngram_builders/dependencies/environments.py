"""The environment in which a project's Python packages are installed: a virtual one, or conda's.

In: a project, and the interpreter that its user chose. Out: folders. Nothing in them is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ngram_builders.dependencies.packages import folder_within

_OWN = (".venv", "venv", ".conda", "env")  # where people have a project's environment
_OF_SHELL = ("VIRTUAL_ENV", "CONDA_PREFIX")
_MARKS = ("pyvenv.cfg", "conda-meta")


def find_site_packages(project: Path, interpreter: str = "") -> Path | None:
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

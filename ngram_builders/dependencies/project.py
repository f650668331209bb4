"""A project -> the installed packages that it imports or declares itself; and the tables of them that serve it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from ngram_builders.counting.tokenize import ReportProgress
from ngram_builders.dependencies.manifests import find_cargo, find_go, find_npm
from ngram_builders.dependencies.packages import Package
from ngram_builders.dependencies.pypi import find_pypi
from ngram_builders.dependencies.tables import PackageCode, PackageTables
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.registry import Registry

PACKAGES = "packages"  # the stage of a build that says how many are done
_MAX_PACKAGES = 64  # of a project; each is asked at every token


def find_packages(project: Path, interpreter: str = "") -> list[Package]:
    """Find a project's packages. interpreter: the Python that its user chose, whose environment counts first."""
    found = chain(find_pypi(project, interpreter), find_npm(project), find_go(project), find_cargo(project))
    return list(islice(found, _MAX_PACKAGES))


def build_dependencies(
    project: Path,
    packages: Sequence[Package],
    store: PackageTables,
    report: ReportProgress,
    has_time: Callable[[], bool] = lambda: True,
) -> list[NgramTable]:
    """Build the tables that packages lack while there is time; have all serve the project. -> the tables"""
    tables = []
    for number, package in enumerate(packages):
        code = PackageCode.of(package)
        table = store.find(code)
        if table is None and has_time():
            report(PACKAGES, number, len(packages))
            table = store.build(code, report)
        tables += [table] if table else []
    kept = _of_other_models(store.registry, project, store.options.token_space.fingerprint)
    # With their own weight, which is not learnt: it costs next to nothing, and with less a package that alone
    # knows a name is not heard when that is typed for the first time.
    store.registry.assign_dependencies(project, [(table.name, table.weight) for table in (*kept, *tables)])
    return tables


def _of_other_models(registry: Registry, project: Path, fingerprint: str) -> Iterator[NgramTable]:
    """The tables that serve a project for other models."""
    known = {table.name: table for table in registry.tables()}
    for name, _ in registry.assignments().dependencies.get(str(project.resolve()), ()):
        if name in known and known[name].fingerprint != fingerprint:
            yield known[name]

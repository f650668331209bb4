"""A project -> the installed packages that it imports or declares itself; and the tables of them that serve it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from ngram_builders.counting.pipeline import CountOptions
from ngram_builders.counting.tokenize import Encode, Report
from ngram_builders.dependencies import cargo, go, npm, pypi
from ngram_builders.dependencies.packages import Package
from ngram_builders.dependencies.tables import build_package, find_table
from ngram_builders.registry.domains import Domain
from ngram_builders.registry.registry import Registry

PACKAGES = "packages"  # the stage of a build that says how many are done
_MAX_PACKAGES = 64  # of a project; each is asked at every token


def find_packages(project: Path, environment: Path | None = None) -> list[Package]:
    """Find a project's packages. environment: the virtual environment to use if the project has none in it."""
    found = chain(
        pypi.find_packages(project, environment),
        npm.find_packages(project),
        go.find_packages(project),
        cargo.find_packages(project),
    )
    return list(islice(found, _MAX_PACKAGES))


def build_dependencies(
    project: Path,
    packages: Sequence[Package],
    encode: Encode,
    options: CountOptions,
    registry: Registry,
    model: str,
    report: Report,
) -> list[Domain]:
    """Build the tables that packages lack, and have them all serve the project. -> the tables"""
    domains = []
    for number, package in enumerate(packages):
        domain = find_table(package, registry, model, options.fingerprint)
        if domain is None:
            report(PACKAGES, number, len(packages))
            domain = build_package(package, encode, options, registry, model, report)
        domains += [domain] if domain else []
    kept = _of_other_models(registry, project, options.fingerprint)
    registry.assign_dependencies(project, [(domain.name, domain.weight) for domain in (*kept, *domains)])
    return domains


def _of_other_models(registry: Registry, project: Path, fingerprint: str) -> Iterator[Domain]:
    """The tables that serve a project for other models."""
    known = {domain.name: domain for domain in registry.domains()}
    for name, _ in registry.assignments().dependencies.get(str(project.resolve()), ()):
        if name in known and known[name].fingerprint != fingerprint:
            yield known[name]

"""A package's table is built once, shared by projects, and asked only in those that depend on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.build import ignore_progress
from ngram_builders.counting.pipeline import CountOptions
from ngram_builders.dependencies.project import PACKAGES, build_dependencies, find_packages
from ngram_builders.dependencies.tables import DEPENDENCY_WEIGHT, PackageCode, PackageTables
from ngram_builders.registry.domains import Domain
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.byte_encoder import encode
from tests.ngram_builders.dependencies.projects import install_python, write


def options(fingerprint: str = "bytes") -> CountOptions:
    orders = (2, 3)
    return CountOptions(
        fingerprint=fingerprint, vocab_size=257, end_of_text=256, orders=orders, min_count=dict.fromkeys(orders, 1)
    )


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data")


def make_project(folder: Path, *packages: str) -> Path:
    """A project that imports packages, with these and one more in its environment."""
    write(folder / "app.py", "".join(f"import {name}\n" for name in packages))
    for name in (*packages, "unused"):
        install_python(
            folder / ".venv", name, "1.0", f"{name}/__init__.py", f"{name}/more.py", text=f"{name} = 1\n"
        )
    return folder


def index(registry: Registry, project: Path, model: str = "tiny", fingerprint: str = "bytes") -> list[str]:
    """Build what a project depends on. -> the names of its tables"""
    tables = PackageTables(registry, model, encode, options(fingerprint))
    return [domain.name for domain in build_dependencies(project, find_packages(project), tables, ignore_progress)]


def served(registry: Registry, file: Path) -> list[tuple[str, float]]:
    return [(domain.name, weight) for domain, weight in registry.domains_for(file, "python")]


def test_tables_are_shared_by_projects_and_serve_no_other_files(registry: Registry, tmp_path: Path):
    shop, bank = make_project(tmp_path / "shop", "flask"), make_project(tmp_path / "bank", "flask", "yaml")
    assert index(registry, shop) == ["pypi-flask@1.0"]
    built = registry.find("pypi-flask@1.0").built
    assert index(registry, bank) == ["pypi-flask@1.0", "pypi-yaml@1.0"]
    assert registry.find("pypi-flask@1.0").built == built
    assert served(registry, shop / "app.py") == [("pypi-flask@1.0", DEPENDENCY_WEIGHT)]
    assert [name for name, _ in served(registry, bank / "deep" / "new.py")] == ["pypi-flask@1.0", "pypi-yaml@1.0"]
    assert served(registry, tmp_path / "elsewhere.py") == []
    assert [domain.name for domain, _ in registry.domains_for(shop / "main.go", "go")] == []


def test_other_code_under_the_same_name_serves_no_other_project(registry: Registry, tmp_path: Path):
    """A repository may bring an environment in which a well-known package is not what its name says."""
    evil, shop = make_project(tmp_path / "evil", "flask"), make_project(tmp_path / "shop", "flask")
    write(next((evil / ".venv").rglob("flask/more.py")), "verify = False\n")
    assert index(registry, evil) == ["pypi-flask@1.0"]
    (name,) = index(registry, shop)
    assert name.startswith("pypi-flask@1.0-") and index(registry, shop) == [name]
    assert [one for one, _ in served(registry, shop / "app.py")] == [name]
    assert index(registry, evil) == ["pypi-flask@1.0"]
    assert index(registry, make_project(tmp_path / "bank", "flask")) == [name]
    assert index(registry, shop, "owner/large", "other") == [f"{name}-large"]


@pytest.mark.parametrize("text", ["flask = 1\n", "verify = False\n"])
def test_a_table_that_another_process_made_meanwhile_stays_and_serves_the_same_code(
    registry: Registry, tmp_path: Path, text: str
):
    shop, other = make_project(tmp_path / "shop", "flask"), make_project(tmp_path / "other", "flask")
    for file in (other / ".venv").rglob("flask/*.py"):
        file.write_text(text)

    def encode_while_another_builds(texts: list[str]) -> Any:
        if not registry.names():
            index(registry, other)
        return encode(texts)

    tables = PackageTables(registry, "tiny", encode_while_another_builds, options())
    made = build_dependencies(shop, find_packages(shop), tables, ignore_progress)
    is_same = text == "flask = 1\n"
    assert [domain.name for domain in made] == (["pypi-flask@1.0"] if is_same else [])
    assert [name for name, _ in served(registry, other / "app.py")] == ["pypi-flask@1.0"]
    assert registry.find("pypi-flask@1.0").recipe["code"] == PackageCode.of(find_packages(other)[0]).digest
    (name,) = index(registry, shop)
    assert (name == "pypi-flask@1.0") == is_same


def test_packages_for_which_there_is_no_time_are_built_the_next_time(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask", "yaml")
    tables, time = PackageTables(registry, "tiny", encode, options()), iter([True, False])

    def build(has_time: Callable[[], bool]) -> list[str]:
        made = build_dependencies(shop, find_packages(shop), tables, ignore_progress, has_time)
        return [domain.name for domain in made]

    assert build(lambda: next(time)) == ["pypi-flask@1.0"]
    assert [name for name, _ in served(registry, shop / "app.py")] == ["pypi-flask@1.0"]
    assert build(lambda: True) == ["pypi-flask@1.0", "pypi-yaml@1.0"]


def test_a_new_version_replaces_the_old_one_in_its_project(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask")
    index(registry, shop)
    info = next((shop / ".venv").rglob("flask-1.0.dist-info"))
    (info / "METADATA").write_text("Name: flask\nVersion: 2.0\n")
    assert index(registry, shop) == ["pypi-flask@2.0"]
    assert [name for name, _ in served(registry, shop / "app.py")] == ["pypi-flask@2.0"]
    reasons = [leftover.path.name for leftover in registry.prune(gone=True)[0]]
    assert reasons == ["pypi-flask@1.0"]
    assert [domain.name for domain in registry.domains()] == ["pypi-flask@2.0"]


def test_an_ignored_environment_is_counted_all_the_same(registry: Registry, tmp_path: Path):
    """Environments ignore themselves, and repositories ignore theirs."""
    shop = make_project(tmp_path / "shop", "flask")
    (shop / ".git").mkdir()
    write(shop / ".gitignore", ".venv/\nmore.py\n")
    write(shop / ".venv" / ".gitignore", "*\n")
    index(registry, shop)
    assert registry.find("pypi-flask@1.0").tokens == len("flask = 1\n") + 1
    assert registry.find("pypi-flask@1.0").files == 1  # both are the same text


def test_each_model_has_its_own_tables_and_keeps_those_of_others(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask")
    assert index(registry, shop) == ["pypi-flask@1.0"]
    assert index(registry, shop, "owner/large", "other") == ["pypi-flask@1.0-large"]
    assert index(registry, shop, "owner/large", "other") == ["pypi-flask@1.0-large"]
    assert index(registry, shop) == ["pypi-flask@1.0"]
    assert {name for name, _ in served(registry, shop / "app.py")} == {"pypi-flask@1.0", "pypi-flask@1.0-large"}


def test_progress_counts_packages_that_lack_a_table(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask", "yaml")
    reports: list[tuple[str, int, int]] = []

    def build() -> list[Domain]:
        tables = PackageTables(registry, "tiny", encode, options())
        return build_dependencies(shop, find_packages(shop), tables, lambda *report: reports.append(report))

    build()
    assert [report for report in reports if report[0] == PACKAGES] == [(PACKAGES, 0, 2), (PACKAGES, 1, 2)]
    reports.clear()
    build()
    assert reports == []


def test_a_package_without_source_code_serves_nobody(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask")
    for file in (shop / ".venv").rglob("flask/*.py"):
        file.unlink()
        write(file.with_suffix(".txt"))
    assert index(registry, shop) == []
    assert registry.domains() == []


def test_a_package_selected_for_a_language_has_that_weight(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask")
    index(registry, shop)
    registry.assign_language("python", [("pypi-flask@1.0", 0.3)])
    assert served(registry, shop / "app.py") == [("pypi-flask@1.0", 0.3)]
    registry.assign_language("python", [])
    assert served(registry, shop / "app.py") == [("pypi-flask@1.0", DEPENDENCY_WEIGHT)]
    registry.remove("pypi-flask@1.0")
    assert served(registry, shop / "app.py") == []

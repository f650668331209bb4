"""A package's table is built once, shared by projects, and asked only in those that depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ngram_builders.build import ignore_progress
from ngram_builders.dependencies.project import PACKAGES, build_dependencies, find_packages
from ngram_builders.dependencies.tables import PackageTables
from ngram_builders.registry.ngram_table import DEFAULT_WEIGHT, NgramTable
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.byte_encoder import encode
from tests.ngram_builders.dependencies.projects import install_python, options, write


def make_project(folder: Path, *packages: str) -> Path:
    """A project that imports packages, with these and one more in its environment."""
    write(folder / "app.py", "".join(f"import {name}\n" for name in packages))
    for name in (*packages, "unused"):
        install_python(
            folder / ".venv", name, "1.0", f"{name}/__init__.py", f"{name}/more.py", text=f"{name} = 1\n"
        )
    return folder


def index(registry: Registry, project: Path, model: str = "tiny", fingerprint: str = "bytes") -> list[str]:
    """Build what a project depends on. -> the packages"""
    tables = PackageTables(registry, model, encode, options(fingerprint))
    return labels(build_dependencies(project, find_packages(project), tables, ignore_progress))


def labels(tables: Iterable[NgramTable]) -> list[str]:
    return [table.recipe["package"] for table in tables]


def served(registry: Registry, file: Path) -> list[str]:
    return labels(table for table, _ in registry.tables_for(file, "python"))


def test_tables_are_shared_by_projects_and_serve_no_other_files(registry: Registry, tmp_path: Path):
    shop, bank = make_project(tmp_path / "shop", "flask"), make_project(tmp_path / "bank", "flask", "yaml")
    assert index(registry, shop) == ["pypi:flask@1.0"]
    (flask,) = registry.tables()
    assert flask.name.startswith("pypi-flask@1.0-")
    assert index(registry, bank) == ["pypi:flask@1.0", "pypi:yaml@1.0"]
    assert registry.find(flask.name).built == flask.built
    assert registry.tables_for(shop / "app.py", "python") == [(flask, DEFAULT_WEIGHT)]
    assert served(registry, bank / "deep" / "new.py") == ["pypi:flask@1.0", "pypi:yaml@1.0"]
    assert served(registry, tmp_path / "elsewhere.py") == []
    assert registry.tables_for(shop / "main.go", "go") == []


def test_other_code_under_the_same_name_serves_no_other_project(registry: Registry, tmp_path: Path):
    """A repository may bring an environment in which a well-known package is not what its name says."""
    evil, shop = make_project(tmp_path / "evil", "flask"), make_project(tmp_path / "shop", "flask")
    write(next((evil / ".venv").rglob("flask/more.py")), "verify = False\n")
    for project in (evil, shop, evil, make_project(tmp_path / "bank", "flask")):
        assert index(registry, project) == ["pypi:flask@1.0"]
    tables = [registry.tables_for(tmp_path / name / "app.py", "python") for name in ("evil", "shop", "bank")]
    assert tables[0] != tables[1] == tables[2]
    assert len(registry.tables()) == 2


def test_packages_for_which_there_is_no_time_are_built_the_next_time(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask", "yaml")
    tables, time = PackageTables(registry, "tiny", encode, options()), iter([True, False])

    def build(has_time: Callable[[], bool]) -> list[str]:
        return labels(build_dependencies(shop, find_packages(shop), tables, ignore_progress, has_time))

    assert build(lambda: next(time)) == ["pypi:flask@1.0"]
    assert served(registry, shop / "app.py") == ["pypi:flask@1.0"]
    assert build(lambda: True) == ["pypi:flask@1.0", "pypi:yaml@1.0"]


def test_a_new_version_replaces_the_old_one_in_its_project(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask")
    index(registry, shop)
    info = next((shop / ".venv").rglob("flask-1.0.dist-info"))
    (info / "METADATA").write_text("Name: flask\nVersion: 2.0\n")
    assert index(registry, shop) == ["pypi:flask@2.0"]
    assert served(registry, shop / "app.py") == ["pypi:flask@2.0"]
    assert len(registry.prune(gone=True)[0]) == 1
    assert labels(registry.tables()) == ["pypi:flask@2.0"]


def test_an_ignored_environment_is_counted_all_the_same(registry: Registry, tmp_path: Path):
    """Environments ignore themselves, and repositories ignore theirs."""
    shop = make_project(tmp_path / "shop", "flask")
    (shop / ".git").mkdir()
    write(shop / ".gitignore", ".venv/\nmore.py\n")
    write(shop / ".venv" / ".gitignore", "*\n")
    index(registry, shop)
    (flask,) = registry.tables()
    assert (flask.tokens, flask.files) == (len("flask = 1\n") + 1, 1)  # both files are the same text


def test_each_model_has_its_own_tables_and_keeps_those_of_others(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask")
    for model, fingerprint in (("tiny", "bytes"), ("large", "other"), ("large", "other"), ("tiny", "bytes")):
        assert index(registry, shop, model, fingerprint) == ["pypi:flask@1.0"]
    serving = [table.fingerprint for table, _ in registry.tables_for(shop / "app.py", "python")]
    assert sorted(serving) == ["bytes", "other"]


def test_progress_counts_packages_that_lack_a_table(registry: Registry, tmp_path: Path):
    shop = make_project(tmp_path / "shop", "flask", "yaml")
    reports: list[tuple[str, int, int]] = []

    def build() -> list[NgramTable]:
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
    assert registry.tables() == []

"""`build-ngrams --dependencies` counts the packages that a project imports, and says which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.registry.registry import Registry
from tests.ngram_builders.dependencies.projects import install_python, write


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    write(tmp_path / "shop" / "app.py", "import till\n")
    return tmp_path / "shop"


def test_packages_are_counted_listed_and_used(project: Path, run: Any, tmp_path: Path):
    install_python(project / ".venv", "till", "1.0", "till/__init__.py", text="def open_till():\n    return 1\n")
    told = run("build-ngrams", project, "--dependencies")
    assert told.startswith(f"{project} is served by 1 package, ") and told.endswith("tokens: pypi:till@1.0\n")
    (table,) = Registry(tmp_path / "data").tables()
    listed = run("ngrams", "list")
    assert table.name in listed
    assert f"{project} is also served by tables of packages that it depends on: 1" in listed
    assert f"files in {project}, which depends on it ({table.weight:g})" in run("ngrams", "show", table.name)
    shown = json.loads(run("ngrams", "show", table.name, "--json"))
    assert shown["used_by"]["dependencies"] == {str(project): table.weight}
    assert shown["roots"] == []
    assert f'"ngrams": ["{table.name}", "python"' in run("complete", "--json", f"{project / 'app.py'}:1:8")


def test_the_environment_of_the_shell_is_used(
    project: Path, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install_python(tmp_path / "shared", "till", "2.0", "till.py")
    assert "no installed packages that it imports" in run("build-ngrams", project, "--dependencies")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "shared"))
    assert "pypi:till@2.0" in run("build-ngrams", project, "--dependencies")


def test_a_package_s_table_is_rebuilt_from_its_project_only(project: Path, run: Any, tmp_path: Path):
    install_python(project / ".venv", "till", "1.0", "till/__init__.py")
    run("build-ngrams", project, "--dependencies")
    assert "nothing to rebuild" in run("ngrams", "rebuild", "--all")
    (table,) = Registry(tmp_path / "data").tables()
    told = run("ngrams", "rebuild", table.name, status=1)
    assert f"it belongs to the package pypi:till@1.0; run: spd-lsp ngrams remove {table.name}" in told
    table = table.path
    data = table.read_bytes()
    table.write_bytes(data[:-64])
    run("build-ngrams", project, "--dependencies")
    assert table.read_bytes() == data

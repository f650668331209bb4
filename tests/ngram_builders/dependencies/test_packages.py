"""A project's packages are those that it names itself and that are installed; what a repository brings is data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ngram_builders.dependencies.packages import Package
from ngram_builders.dependencies.project import find_packages
from ngram_builders.dependencies.tables import PackageCode, PackageTables
from ngram_builders.registry.ngram_table import check_name
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.byte_encoder import encode
from tests.ngram_builders.dependencies.projects import install_npm, install_python, options, write

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="Windows reserves links and pipes")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "shop"
    write(
        folder / "app.py", "import os, flask as web\nfrom yaml.loader import Loader\n\ndef f():\n    import shop\n"
    )
    write(folder / "shop" / "cart.py", "import cart\nimport app\n")
    return folder


def found(project: Path, interpreter: Path | str = "") -> list[str]:
    return [str(package) for package in find_packages(project, str(interpreter))]


def test_python_packages_are_found_by_what_is_imported(project: Path):
    install_python(project / ".venv", "Flask", "3.0.0", "flask/__init__.py", "flask/app.py")
    install_python(project / ".venv", "PyYAML", "6.0.1", "yaml/__init__.py", "_yaml/__init__.py")
    site = install_python(project / ".venv", "click", "8.1.0", "click/__init__.py")
    assert found(project) == ["pypi:flask@3.0.0", "pypi:pyyaml@6.0.1"]
    (flask, yaml) = find_packages(project)
    assert (flask.sources, yaml.sources) == ((site / "flask",), (site / "yaml",))


def test_submodules_are_followed_and_of_a_namespace_only_those_that_are_imported(project: Path):
    parts = [f"google/cloud/{name}/__init__.py" for name in ("storage", "bigquery", "tasks")]
    for name, part in zip(("storage", "bigquery", "tasks"), parts, strict=True):
        site = install_python(project / ".venv", f"google-cloud-{name}", "1.0", part)
    install_python(project / ".venv", "botocore", "1.40", "botocore/__init__.py", "botocore/exceptions.py")
    write(
        project / "app.py",
        "from botocore.exceptions import ClientError\n"
        "from google.cloud import (\n    tasks,  # later\n    bigquery as b,\n)\n",
    )
    assert found(project) == [
        "pypi:botocore@1.40",
        "pypi:google-cloud-bigquery@1.0",
        "pypi:google-cloud-tasks@1.0",
    ]
    assert find_packages(project)[2].sources == (site / "google" / "cloud" / "tasks",)


def test_a_module_of_its_own_is_no_package_and_a_module_may_be_a_file(project: Path):
    install_python(project / "venv", "shop", "1.0", "shop/__init__.py")
    install_python(project / "venv", "cart", "1.0", "cart/__init__.py")
    write(project / "other.py", "import six\n")
    site = install_python(project / "venv", "six", "1.17.0", "six.py")
    (six,) = find_packages(project)
    assert (str(six), six.sources) == ("pypi:six@1.17.0", (site / "six.py",))


def test_a_module_within_a_package_hides_no_package_of_that_name(project: Path):
    for name in ("redis", "till", "bank"):
        install_python(project / ".venv", name, "1.0", f"{name}/__init__.py")
    write(project / "shop" / "__init__.py")
    write(project / "shop" / "redis.py", "import redis, till\n")
    write(project / "src" / "bank" / "__init__.py", "import bank\n")
    write(project / "tools" / "till.py")
    write(project / "tools" / "open.py", "import till\n")
    assert found(project) == ["pypi:redis@1.0", "pypi:till@1.0"]


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_environment_of_the_shell_is_used_only_if_the_project_has_none(
    project: Path, tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch
):
    install_python(tmp_path / "shared", "flask", "2.0.0", "flask/__init__.py")
    assert found(project) == []
    monkeypatch.setenv(variable, str(tmp_path / "shared"))
    assert found(project) == ["pypi:flask@2.0.0"]
    install_python(project / ".venv", "flask", "3.0.0", "flask/__init__.py")
    assert found(project) == ["pypi:flask@3.0.0"]


@pytest.mark.parametrize("name", [".conda", "env"])
def test_an_environment_of_conda_is_one(project: Path, name: str):
    site = install_python(project / name, "flask", "3.0.0", "flask/__init__.py")
    (project / name / "pyvenv.cfg").unlink()
    assert found(project) == [], "a folder of that name may be anything"
    write(project / name / "conda-meta" / "history")
    (flask,) = find_packages(project)
    assert flask.sources == (site / "flask",)


def test_the_environment_of_the_chosen_interpreter_counts_first(project: Path, tmp_path: Path):
    install_python(project / ".venv", "flask", "3.0.0", "flask/__init__.py")
    install_python(tmp_path / "chosen", "flask", "2.0.0", "flask/__init__.py")
    write(tmp_path / "chosen" / "bin" / "python")
    assert found(project, tmp_path / "chosen" / "bin" / "python") == ["pypi:flask@2.0.0"]
    assert found(project, tmp_path / "chosen" / "python.exe") == ["pypi:flask@2.0.0"]
    for elsewhere in ("/usr/bin/python3", "bin/python", "/"):
        assert found(project, elsewhere) == ["pypi:flask@3.0.0"]


@needs_links
def test_no_link_leads_out_of_a_project(project: Path, tmp_path: Path):
    install_python(tmp_path / "other", "flask", "3.0.0", "flask/__init__.py")
    (project / ".venv").symlink_to(tmp_path / "other", target_is_directory=True)
    assert found(project) == []
    (project / ".venv").unlink()
    write(project / ".venv" / "pyvenv.cfg")
    (project / ".venv" / "lib").symlink_to(tmp_path / "other" / "lib", target_is_directory=True)
    assert found(project) == []
    (project / ".venv" / "lib").unlink()
    site = install_python(project / ".venv", "flask", "3.0.0", "flask/__init__.py")
    (site / "flask" / "__init__.py").unlink()
    (site / "flask").rmdir()
    (site / "flask").symlink_to(tmp_path, target_is_directory=True)
    assert found(project) == []


@pytest.mark.parametrize("name", ["../../../../app.py", "/etc/passwd", "..", ".", "", "a b", "flask\0x"])
def test_a_record_names_nothing_elsewhere(project: Path, name: str):
    site = install_python(project / ".venv", "flask", "3.0.0", "flask/__init__.py")
    write(site / "flask-3.0.0.dist-info" / "RECORD", f"{name}/x.py,,\n{name},,\n")
    assert found(project) == []


@needs_links
def test_manifests_that_are_pipes_links_large_or_nonsense_are_none(project: Path, tmp_path: Path):
    os.mkfifo(project / "package.json")
    (project / "go.mod").symlink_to(write(tmp_path / "go.mod", "require a.b/c v1.0.0\n"))
    write(project / "Cargo.toml", "\0[dependencies]\n" * 100_000)
    assert found(project) == []
    (project / "package.json").unlink()
    for text in ("[" * 100_000, "[]", "{", '{"dependencies": [1]}', '{"dependencies": {"../x": "1", "": "1"}}'):
        write(project / "package.json", text)
        assert found(project) == []


def test_npm_packages_are_those_that_are_declared_and_installed(project: Path):
    modules = project / "node_modules"
    write(project / "package.json", '{"dependencies": {"store": "^1.0.0", "@types/node": "*", "absent": "1"}}')
    store = install_npm(modules, "store", "1.2.3", "index.d.ts", "dist/store.d.ts")
    install_npm(modules, "@types/node", "20.1.0", "fs.d.ts")
    install_npm(modules, "transitive", "1.0.0", "index.js")
    assert found(project) == ["npm:@types/node@20.1.0", "npm:store@1.2.3"]
    _, stored = find_packages(project)
    assert stored.sources == (store, store / "dist")


@pytest.mark.parametrize("version", ["", "1.0\\u001b[31m", "../1", "1 0", "1" * 101])
def test_a_version_is_a_short_word(project: Path, version: str):
    write(project / "package.json", '{"dependencies": {"store": "*"}}')
    install_npm(project / "node_modules", "store", version, "index.js")
    assert found(project) == []


@needs_links
def test_pnpm_links_within_the_project_and_nowhere_else(project: Path, tmp_path: Path):
    write(project / "package.json", '{"dependencies": {"store": "1", "evil": "1"}}')
    modules = project / "node_modules"
    real = install_npm(modules / ".pnpm" / "store@1.2.3" / "node_modules", "store", "1.2.3", "index.d.ts")
    (modules / "store").symlink_to(real, target_is_directory=True)
    (modules / "evil").symlink_to(install_npm(tmp_path, "evil", "1.0.0"), target_is_directory=True)
    assert found(project) == ["npm:store@1.2.3"]


def test_go_modules_are_those_that_are_required_directly(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "mod"))
    gin = tmp_path / "mod" / "github.com" / "!gin!gonic" / "gin@v1.9.1"
    for folder in (gin, tmp_path / "mod" / "golang.org" / "x" / "net@v0.1.0"):
        write(folder / "main.go", "package main\n")
    required = "\tgithub.com/GinGonic/gin v1.9.1\n\tgolang.org/x/net v0.1.0 // indirect\n\ta.b/absent v1.0.0\n"
    write(project / "go.mod", f"module example.com/shop\n\ngo 1.22\n\nrequire (\n{required})\n")
    (package,) = find_packages(project)
    assert (str(package), package.sources) == ("go:github.com/GinGonic/gin@v1.9.1", (gin,))
    write(project / "go.mod", "module shop\nrequire a.b/../../evil v1.0.0\nrequire golang.org/x/net v0.1.0\n")
    assert found(project) == ["go:golang.org/x/net@v0.1.0"]


def test_crates_are_those_that_are_declared_in_the_version_that_is_locked(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    sources = tmp_path / "cargo" / "registry" / "src" / "index.crates.io-6f17"
    for name in ("serde-1.0.200", "serde-1.0.100", "tokio-1.37.0", "itoa-1.0.11"):
        write(sources / name / "src" / "lib.rs", "pub fn x() {}\n")
    write(project / "Cargo.toml", '[package]\nname = "shop"\n[dependencies]\nserde = "1"\n\n[dependencies.tokio]\n'
                                  'version = "1"\n[dev-dependencies]\nitoa = "1"\n')  # fmt: skip
    locked = {"serde": "1.0.200", "tokio": "1.37.0", "itoa": "1.0.11", "../evil": "1"}
    entries = (f'[[package]]\nname = "{name}"\nversion = "{version}"\n' for name, version in locked.items())
    write(project / "Cargo.lock", "version = 3\n\n" + "\n".join(entries))
    assert found(project) == ["cargo:serde@1.0.200", "cargo:tokio@1.37.0"]


def test_every_table_name_is_one_that_a_table_can_have(tmp_path: Path):
    tables = PackageTables(Registry(tmp_path), "tiny", encode, options())
    names = ["a", "@scope/x", "github.com/" + "very/long/" * 20 + "x", "Ünï/cödé", "..", "-", "x" * 100, "x" * 101]
    codes = [PackageCode(Package("go", name, "1.0.0-beta+build..", ()), (), "digest") for name in names]
    made = [check_name(tables._name_for(code)) for code in codes]
    assert len(set(made)) == len(names)

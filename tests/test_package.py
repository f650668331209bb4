"""The wheel holds what runs, and nothing else."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from spd_lsp import __version__
from spd_lsp.extras import MODELS

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow  # each looks into a wheel that is built here


def build(target: str, folder: Path, **environment: str) -> tuple[Path, str]:
    """What a build of the source tree makes, and what it says."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("spd_lsp*")
    return path, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", tmp_path_factory.mktemp("wheel"))[0]


def test_the_wheel_holds_both_packages_the_starter_and_the_licences_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        notice = archive.read("spd_lsp/starter/NOTICE").decode()
    starter = {Path(name).name for name in names if name.startswith("spd_lsp/starter/")}
    assert {"MODEL_CARD.md", "training.json", "LICENSE-APACHE"} <= starter
    assert len({name for name in starter if name.endswith(".gguf")}) == 1
    about = f"spd_lsp-{__version__}.dist-info"
    assert {"spd_lsp/py.typed", f"{about}/licenses/LICENSE", f"{about}/licenses/spd_lsp/starter/NOTICE"} <= names
    assert "\npython:\n" in notice and "  Django 6.1.3: BSD-3-Clause\n" in notice
    assert {name.split("/")[0] for name in names} == {"spd_lsp", "ngram_builders", about}
    assert wheel.stat().st_size < 100 * 1000**2  # what a package index takes


def test_the_wheel_leaves_out_what_only_contributors_run(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith("spd_lsp/training/")]
    assert not [name for name in names if name.endswith((".so", ".dylib", ".dll", ".pyd"))]
    assert "spd_lsp/evaluation/quality/run.py" in names


def test_what_the_wheel_holds_needs_nothing_that_it_leaves_out(wheel):
    archive = zipfile.ZipFile(wheel)
    files = [name for name in archive.namelist() if name.endswith(".py")]
    held = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    absent = {name: imported_modules(archive.read(name).decode()) - held for name in files}
    assert {name: missing for name, missing in absent.items() if missing} == {}


def imported_modules(source: str) -> set[str]:
    """Modules of both packages that a file imports anywhere."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    modules = {node.module for node in nodes if node.module}
    return {module for module in modules if module.split(".")[0] in ("spd_lsp", "ngram_builders")}


def test_torch_is_only_installed_by_those_who_ask_for_it(wheel):
    """It takes gigabytes, and the starter runs without it."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"spd_lsp-{__version__}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: (\S+?)[<>;].*?(extra == '.*')?$", metadata, re.MULTILINE)
    assert {name for name, extra in needed if not extra} >= {"pygls", "msgpack", "tree-sitter", "xllamacpp"}
    assert "extra == 'models'" in {extra for name, extra in needed if name in MODELS}
    assert all(extra for name, extra in needed if name in MODELS)


def test_constraints_name_one_version_of_each_package_for_every_python():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    names = {requirement.name for requirement in requirements}
    for python in ("3.11", "3.12", "3.13", "3.14"):
        there = [r.name for r in requirements if not r.marker or r.marker.evaluate({"python_version": python})]
        assert sorted(there) == sorted(names)

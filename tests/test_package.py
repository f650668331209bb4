"""The wheel holds what runs, and nothing else."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ngram_builders import compile_kernel
from ngram_builders.compile_kernel import LIBRARY_NAME, PACKAGE, SOURCES
from spd_lsp import __version__
from spd_lsp.extras import MODELS

ROOT = Path(__file__).parent.parent
LIBRARY = f"{PACKAGE}/{LIBRARY_NAME}"
pytestmark = pytest.mark.slow  # each looks into a wheel that is built here
MADE_OF = {"ngram_builders/compile_kernel.py", *(f"{PACKAGE}/{name}" for name in SOURCES)}


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


@pytest.fixture
def compiler(tmp_path):
    """Some compiler that can."""
    library, failure = compile_kernel.compile_kernel(ROOT, tmp_path)
    if not library:
        pytest.skip(failure)


def test_the_wheel_holds_both_packages_the_starter_and_the_licences_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        notice = archive.read("spd_lsp/starter/NOTICE").decode()
    starter = {Path(name).name for name in names if name.startswith("spd_lsp/starter/")}
    assert {"python.ngt", "MODEL_CARD.md", "training.json", "LICENSE-APACHE"} <= starter
    assert len({name for name in starter if name.endswith(".gguf")}) == 1
    about = f"spd_lsp-{__version__}.dist-info"
    assert {"spd_lsp/py.typed", f"{about}/licenses/LICENSE", f"{about}/licenses/spd_lsp/starter/NOTICE"} <= names
    assert "\npython:\n" in notice and "  Django 6.1.3: BSD-3-Clause\n" in notice
    assert {name.split("/")[0] for name in names} == {"spd_lsp", "ngram_builders", about}
    assert wheel.stat().st_size < 100 * 1000**2  # what a package index takes


def test_the_wheel_brings_the_compiled_kernel_and_not_what_it_is_made_of(wheel, compiler, tmp_path):
    """One wheel for every Python of a system, and only for that system."""
    assert wheel.name.startswith(f"spd_lsp-{__version__}-py3-none-")
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed", [n for n in names if n.startswith("ngram_builders/")])
    assert LIBRARY in names
    assert not MADE_OF & names
    code = "from ngram_builders.table import kernel; print(kernel.__file__, kernel.load_kernel()._name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    table = tmp_path / "installed" / PACKAGE
    assert said.stdout == f"{table / 'kernel.py'} {table / LIBRARY_NAME}\n"


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """What pip writes of the wheel, run by this interpreter; the packages that it needs are there."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    environment = {**os.environ, "PYTHONPATH": str(folder), "SPD_LSP_DATA_DIR": str(folder / "data")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spd_lsp", *arguments]
        return subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True)

    return run


def test_the_wheel_leaves_out_what_only_contributors_run(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    rooms = ("training/", "evaluation/bench/", "evaluation/infilling/", "evaluation/paper/")
    assert not [name for name in names if name.startswith(tuple(f"spd_lsp/{room}" for room in rooms))]
    assert "spd_lsp/evaluation/table_comparison.py" in names


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "linearity", "."],
        ["eval", "infilling", __file__, "--run-code"],
    ],
)
def test_such_a_command_says_in_one_sentence_that_it_is_run_from_a_clone(installed, command):
    done = installed(*command)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line == (
        "Error: this command is not part of the installed package, as only contributors need it; "
        "run it from a clone of the repository"
    )


@pytest.mark.parametrize("command", [["ngrams", "compare"], ["eval", "quality"], ["eval", "confidence"], ["eval"]])
def test_the_commands_of_users_are_complete_without_it(installed, command):
    done = installed(*command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_what_the_wheel_holds_needs_nothing_that_it_leaves_out(wheel):
    """But for the two files of commands that look for it."""
    archive = zipfile.ZipFile(wheel)
    files = [name for name in archive.namelist() if name.endswith(".py")]
    held = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    absent = {
        name: missing
        for name in files
        if (missing := imported_modules(archive.read(name).decode()) - held)
        and not name.startswith(("spd_lsp/cli.py", "spd_lsp/evaluation/commands.py"))
    }
    assert absent == {}


def imported_modules(source: str) -> set[str]:
    """Modules of both packages that a file imports anywhere."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    modules = {node.module for node in nodes if node.module}
    return {module for module in modules if module.split(".")[0] in ("spd_lsp", "ngram_builders")}


def test_the_source_archive_has_what_the_kernel_is_made_of(tmp_path):
    path, _ = build("sdist", tmp_path)
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert MADE_OF | {"pyproject.toml"} <= names
    assert LIBRARY not in names


def test_torch_is_only_installed_by_those_who_ask_for_it(wheel):
    """It takes gigabytes, and the starter runs without it."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"spd_lsp-{__version__}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: (\S+?)[<>;].*?(extra == '.*')?$", metadata, re.MULTILINE)
    assert {name for name, extra in needed if not extra} >= {
        "pygls",
        "msgpack",
        "tree-sitter",
        "xllamacpp",
        "gguf",
    }
    assert "extra == 'models'" in {extra for name, extra in needed if name in MODELS}
    assert all(extra for name, extra in needed if name in MODELS)


def test_constraints_name_one_version_of_each_package_for_every_python():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    names = {requirement.name for requirement in requirements}
    for python in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        there = [r.name for r in requirements if not r.marker or r.marker.evaluate({"python_version": python})]
        assert sorted(there) == sorted(names)

"""The wheel holds what runs, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ngram_builders import compile_kernel
from ngram_builders.compile_kernel import LIBRARY_NAME, PACKAGE, SOURCES
from spd_lsp import __version__
from spd_lsp.extras import MODELS

ROOT = Path(__file__).parent.parent
LIBRARY = f"{PACKAGE}/{LIBRARY_NAME}"
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


def test_the_wheel_holds_both_packages_and_the_starter_model(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    starter = {Path(name).name for name in names if name.startswith("spd_lsp/starter/")}
    assert {"python.ngt", "MODEL_CARD.md", "training.json"} <= starter
    assert len({name for name in starter if name.endswith(".gguf")}) == 1
    assert {"spd_lsp/cli.py", "ngram_builders/table/reader.py"} <= names
    assert {"spd_lsp/py.typed", "ngram_builders/py.typed"} <= names


def test_the_wheel_holds_the_licence_and_the_notice_of_what_the_model_was_made_from(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        notice = archive.read("spd_lsp/starter/NOTICE").decode()
    licences = f"spd_lsp-{__version__}.dist-info/licenses"
    assert {f"{licences}/LICENSE", f"{licences}/spd_lsp/starter/NOTICE"} <= names
    assert "spd_lsp/starter/LICENSE-APACHE" in names
    assert "\npython:\n" in notice and "  Django 6.1.3: BSD-3-Clause\n" in notice


def test_the_wheel_holds_neither_tests_nor_editors(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"spd_lsp", "ngram_builders", f"spd_lsp-{__version__}.dist-info"}


def test_the_wheel_brings_the_compiled_kernel_and_not_what_it_is_made_of(wheel, compiler, tmp_path):
    """One wheel for every Python of a system, and only for that system."""
    assert wheel.name.startswith(f"spd_lsp-{__version__}-py3-none-")
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed", [n for n in names if n.startswith("ngram_builders/")])
    assert LIBRARY in names
    assert not MADE_OF & names
    code = "from ngram_builders.table import kernel; print(kernel.__file__, kernel.load_kernel().reason)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert said.stdout == f"{tmp_path / 'installed' / 'ngram_builders' / 'table' / 'kernel.py'} \n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"SPD_LSP_NO_KERNEL": "1"}, "SPD_LSP_NO_KERNEL is set"),
        ({"CC": "", "PATH": ""}, "no C compiler found"),
        ({"CC": f"{sys.executable} -c raise(SystemExit(3))", "PATH": ""}, "status 3"),
    ],
)
def test_without_a_kernel_the_wheel_is_pure_and_the_build_says_why(tmp_path, environment, reason):
    if "PATH" in environment and find_spec("ziglang"):
        pytest.skip("this Python brings a compiler")
    path, said = build("wheel", tmp_path, **environment)
    assert path.name == f"spd_lsp-{__version__}-py3-none-any.whl"
    assert LIBRARY not in zipfile.ZipFile(path).namelist()
    assert re.search(f"n-gram kernel: not compiled, queries will be slower: .*{reason}", said)


@pytest.mark.slow
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


def test_the_wheel_fits_a_package_index(wheel):
    assert wheel.stat().st_size < 40 * 2**20


def test_python_and_the_package_metadata_agree_on_the_version():
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")

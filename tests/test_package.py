"""The wheel holds what runs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spd_lsp import __version__

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_both_packages_and_the_starter_model(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    starter = {"config.json", "model.safetensors", "tokenizer.json", "python.ngt", "MODEL_CARD.md"}
    assert {f"spd_lsp/starter/{name}" for name in starter} <= names
    assert {"spd_lsp/cli.py", "spd_lsp/py.typed", "ngram_builders/tables.py", "ngram_builders/py.typed"} <= names


def test_the_wheel_holds_neither_tests_nor_editors(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"spd_lsp", "ngram_builders", f"spd_lsp-{__version__}.dist-info"}


def test_the_wheel_fits_a_package_index(wheel):
    assert wheel.stat().st_size < 40 * 2**20


def test_python_and_the_package_metadata_agree_on_the_version():
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")

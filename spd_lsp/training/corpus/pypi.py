"""Python packages: a requirement goes in, a description and its Python files come out."""

from __future__ import annotations

import email.message
import email.parser
import hashlib
import platform
import sys
import sysconfig
import zipfile
from pathlib import Path

from spd_lsp.training.corpus.licences import granted
from spd_lsp.training.corpus.package import Files, Source, fetch_archive

STANDARD_LIBRARY = "python-stdlib"  # of the interpreter that runs this
_PYTHON = "3.13"  # of the wheels that are fetched
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "any")


def open_wheel(requirement: str, archives: Path) -> tuple[Source, Files]:
    """Open a package's wheel, fetching it without its dependencies if necessary."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", _PYTHON, *(f"--platform={p}" for p in _PLATFORMS), "--dest", ".", requirement]
    wheel = fetch_archive(command, archives / requirement, "*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(archive.namelist())
        described = next(n for n in names if n.endswith(".dist-info/METADATA") and n.count("/") == 1)
        metadata = email.parser.Parser().parsestr(archive.read(described).decode("utf-8"))
        licence = licence_of(metadata)
        for name in names:  # where the metadata names no licence, what the licence's file grants
            if not licence and ".dist-info/" in name and "LICEN" in name.upper():
                licence = granted(archive.read(name).decode("utf-8", "replace"))
        files = [(name, archive.read(name)) for name in names if name.endswith(".py")]
    return Source.of(wheel, str(metadata["Name"]), str(metadata["Version"]), licence, "python"), files


def licence_of(metadata: email.message.Message) -> str:
    """Return the licence that the package states: expression, else classifiers, else the text's first line."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [str(c) for c in metadata.get_all("Classifier", []) if str(c).startswith("License ::")]
    if classifiers:
        return ", ".join(c.split(" :: ")[-1] for c in classifiers)
    return next((line.strip() for line in str(metadata["License"] or "").splitlines() if line.strip()), "")


def open_standard_library() -> tuple[Source, Files]:
    """The modules of the interpreter's library, without tests; the digest covers every name and content."""
    lib = Path(sysconfig.get_path("stdlib"))
    paths = [
        path
        for path in sorted(lib.rglob("*.py"))
        if path.relative_to(lib).parts[0] not in ("site-packages", "test")
    ]
    files = [(path.relative_to(lib).as_posix(), path.read_bytes()) for path in paths]
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = platform.python_version()
    archive = f"Lib of {platform.python_implementation()} {version}"
    return Source(STANDARD_LIBRARY, version, "PSF-2.0", archive, digest.hexdigest(), "python"), files

"""Python packages: a requirement goes in, a description and its Python files come out. Nothing is built."""

from __future__ import annotations

import email.message
import email.parser
import hashlib
import platform
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ngram_builders import programs
from spd_lsp.training.corpus.licences import granted
from spd_lsp.training.corpus.package import FetchedPackage, Source, fetch_archives

STANDARD_LIBRARY = "python-stdlib"
_PYTHON = "3.13"  # of the wheels that are fetched
_SKIPPED_IN_LIBRARY = frozenset({"site-packages", "test"})


def open_wheel(requirement: str, archives: Path) -> FetchedPackage:
    """Open a package's wheel, fetching it if necessary."""
    wheel = download_wheel(requirement, archives)
    return FetchedPackage(describe_wheel(wheel), lambda: _wheel_files(wheel))


def download_wheel(requirement: str, folder: Path) -> Path:
    """Fetch one wheel without its dependencies, or return the one fetched before. Nothing is built or run."""
    into = folder / requirement  # includes the version, so another pin is another folder
    platforms = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "any")
    command = programs.python("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    command += ["--python-version", _PYTHON, *(f"--platform={p}" for p in platforms), "--dest", ".", requirement]
    return fetch_archives(command, requirement, into, "*.whl", "pip")[0]


def describe_wheel(wheel: Path) -> Source:
    """Return name, version, licence and checksum of a wheel, from its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA") and n.count("/") == 1)
        metadata = email.parser.Parser().parsestr(archive.read(name).decode("utf-8"))
        licence = licence_of(metadata) or _licence_granted(archive)
    return Source(
        name=str(metadata["Name"]),
        version=str(metadata["Version"]),
        licence=licence,
        archive=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )


def licence_of(metadata: email.message.Message) -> str:
    """Return the licence that the package states: expression, else classifiers, else the text's first line."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [str(c) for c in metadata.get_all("Classifier", []) if str(c).startswith("License ::")]
    if classifiers:
        return ", ".join(c.split(" :: ")[-1] for c in classifiers)
    return next((line.strip() for line in str(metadata["License"] or "").splitlines() if line.strip()), "")


def _licence_granted(archive: zipfile.ZipFile) -> str:
    """Return the licence that a wheel's licence file grants, if the metadata names none."""
    names = (name for name in archive.namelist() if ".dist-info/" in name and "LICEN" in name.upper())
    for name in names:
        if licence := granted(archive.read(name).decode("utf-8", "replace")):
            return f"{licence} (by its {PurePosixPath(name).name} file)"
    return ""


def _wheel_files(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files of a wheel, in a stable order."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".py"):
                yield name, archive.read(name)


def standard_library() -> FetchedPackage:
    """Return the interpreter's standard library; its checksum covers every file's name and content, in order."""
    lib = Path(sysconfig.get_path("stdlib"))
    digest = hashlib.sha256()
    for name, content in _library_files(lib):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    source = Source(
        name=STANDARD_LIBRARY,
        version=platform.python_version(),
        licence="PSF-2.0",
        archive=f"Lib of {platform.python_implementation()} {platform.python_version()}",
        sha256=digest.hexdigest(),
    )
    return FetchedPackage(source, lambda: _library_files(lib))


def _library_files(lib: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the modules of the standard library, without installed packages and tests."""
    for path in sorted(lib.rglob("*.py")):
        name = path.relative_to(lib)
        if name.parts[0] not in _SKIPPED_IN_LIBRARY:
            yield name.as_posix(), path.read_bytes()

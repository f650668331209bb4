"""Projects with installed packages, as the package managers lay them out."""

from __future__ import annotations

from pathlib import Path

from ngram_builders.counting.pipeline import CountOptions
from ngram_builders.ngrams import TokenSpace


def write(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def install_python(environment: Path, name: str, version: str, *files: str, text: str = "x = 1\n") -> Path:
    """A package in a virtual environment. -> the folder of all packages"""
    write(environment / "pyvenv.cfg", "home = /usr/bin\n")
    site = environment / "lib" / "python3.11" / "site-packages"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    write(site / info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: no\n")
    write(site / info / "RECORD", "".join(f"{file},sha256=a,1\n" for file in (*files, f"{info}/METADATA")))
    for file in files:
        write(site / file, text)
    return site


def install_npm(folder: Path, name: str, version: str, *files: str) -> Path:
    """A package in a folder of node_modules. -> its folder"""
    write(folder / name / "package.json", f'{{"name": "{name}", "version": "{version}"}}')
    for file in files:
        write(folder / name / file, "export function openStore(): void;\n")
    return folder / name


def options(fingerprint: str = "bytes") -> CountOptions:
    """How packages are counted."""
    orders = (2, 3)
    return CountOptions(
        token_space=TokenSpace(fingerprint, 257, 256), orders=orders, min_count=dict.fromkeys(orders, 1)
    )

"""Crates that a project's Cargo.toml declares, in the version of its lock file, from Cargo's registry."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ngram_builders.dependencies.packages import Package, folder_within, read_manifest

_SECTION = re.compile(r"^\[(?:workspace\.)?dependencies(?:\.([\w-]+))?\][ \t]*$")
_CRATE = re.compile(r"^([\w-]+)(?:\.workspace)?[ \t]*=")
_LOCKED = re.compile(r'^name = "([\w-]+)"\nversion = "([\w.+-]+)"$', re.MULTILINE)


def find_packages(project: Path) -> Iterator[Package]:
    """Find the declared crates that are downloaded."""
    declared = set(_declared(read_manifest(project / "Cargo.toml")))
    sources = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "registry" / "src"
    for name, version in _LOCKED.findall(read_manifest(project / "Cargo.lock").replace("\r\n", "\n")):
        for folder in sorted(sources.glob(f"*/{name}-{version}")) if name in declared else []:
            if found := folder_within(folder, sources):
                yield Package("cargo", name, version, (found,))
                break


def _declared(manifest: str) -> Iterator[str]:
    """The names in the sections `[dependencies]` and `[dependencies.name]`."""
    inside = False
    for line in manifest.splitlines():
        if line.startswith("["):
            section = _SECTION.match(line)
            inside = section is not None and section[1] is None
            if section and section[1]:
                yield section[1]
        elif inside and (crate := _CRATE.match(line)):
            yield crate[1]

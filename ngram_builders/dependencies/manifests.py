"""Packages that a project's manifest declares itself, where npm, Go and Cargo keep their code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngram_builders.dependencies.packages import Package, existing, folder_within, read_manifest

_NPM_NAME = re.compile(r"(?:@[\w.-]+/)?[\w-][\w.-]*", re.ASCII)
_NPM_VERSION = re.compile(r"[\w.+-]{1,100}", re.ASCII)
_BUILT = ("dist", "build")  # where most packages have their code, and builds of other repositories have none
_GO_REQUIRED = re.compile(
    r"^[ \t]*(?:require[ \t]+)?([\w.-]+(?:/[\w.~-]+)+)[ \t]+(v[\w.+-]+)[ \t]*(//.*)?$", re.MULTILINE
)
_SECTION = re.compile(r"^\[(?:workspace\.)?dependencies(?:\.([\w-]+))?\][ \t]*$")
_CRATE = re.compile(r"^([\w-]+)(?:\.workspace)?[ \t]*=")
_LOCKED = re.compile(r'^name = "([\w-]+)"\nversion = "([\w.+-]+)"$', re.MULTILINE)


def find_npm(project: Path) -> Iterator[Package]:
    """Find the packages in package.json that are installed, also where pnpm links them within node_modules."""
    declared = _read_json(project / "package.json").get("dependencies")
    for name in sorted(declared) if isinstance(declared, dict) else []:
        folder = folder_within(project / "node_modules" / name, project) if _NPM_NAME.fullmatch(name) else None
        version = _read_json(folder / "package.json").get("version") if folder else None
        if folder and isinstance(version, str) and _NPM_VERSION.fullmatch(version):
            yield Package("npm", name, version, existing([folder, *(folder / built for built in _BUILT)]))


def _read_json(path: Path) -> dict[str, Any]:
    """Read an object; an empty one if there is none."""
    try:
        value = json.loads(read_manifest(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def find_go(project: Path) -> Iterator[Package]:
    """Find the modules in go.mod that are downloaded; indirect ones are the requirements of others."""
    for name, version, comment in _GO_REQUIRED.findall(read_manifest(project / "go.mod")):
        path = re.sub("[A-Z]", lambda letter: "!" + letter[0].lower(), f"{name}@{version}")
        folder = folder_within(_go_cache() / path, _go_cache())
        if folder and "indirect" not in comment:
            yield Package("go", name, version, (folder,))


def _go_cache() -> Path:
    """Go's module cache, where Go looks for it."""
    if cache := os.environ.get("GOMODCACHE"):
        return Path(cache)
    first = os.environ.get("GOPATH", "").partition(os.pathsep)[0]
    return (Path(first) if first else Path.home() / "go") / "pkg" / "mod"


def find_cargo(project: Path) -> Iterator[Package]:
    """Find the crates in Cargo.toml that are downloaded, in the version of its lock file."""
    declared = set(_declared_crates(read_manifest(project / "Cargo.toml")))
    sources = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "registry" / "src"
    for name, version in _LOCKED.findall(read_manifest(project / "Cargo.lock").replace("\r\n", "\n")):
        for folder in sorted(sources.glob(f"*/{name}-{version}")) if name in declared else []:
            if found := folder_within(folder, sources):
                yield Package("cargo", name, version, (found,))
                break


def _declared_crates(manifest: str) -> Iterator[str]:
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

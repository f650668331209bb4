"""Packages by registry. In: a requirement. Out: a package's origin and its handwritten sources.

Nothing is built or run. Filtering by content happens elsewhere. Debian states the licence of every file
(debian/copyright, https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/), so files without a
permissive licence are skipped one by one; a package whose copyright file has another format yields nothing.
"""

from __future__ import annotations

import email.message
import email.parser
import fnmatch
import hashlib
import io
import json
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ngram_builders.errors import UserError

Files = Iterable[tuple[str, bytes]]  # names with slashes, in a stable order

STANDARD_LIBRARY = "python-stdlib"  # of the running interpreter
_PYTHON = "3.13"  # of the wheels that are fetched
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "any")

_TYPESCRIPT = (".ts", ".tsx", ".mts")
_JAVASCRIPT = (".js", ".mjs", ".jsx")
_DECLARATIONS = (".d.ts", ".d.mts")
_BUILT = frozenset(
    {"dist", "build", "umd", "cjs", "esm", "es", "es6", "esnext", "amd", "bundles", "out", "node_modules", "min"}
    | {"fesm2015", "fesm2022", "_esm", "_cjs", "commonjs", "output"}
)

SUFFIXES = {
    "go": (".go",),
    "rust": (".rs",),
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".ipp"),
    "java": (".java",),
}
_MACHINE_READABLE = re.compile(r"^Format:.*copyright-format", re.MULTILINE)
_STANZA = re.compile(r"\n[ \t]*\n")
_NAMED = re.compile(r"^(?P<field>[\w-]+):[ \t]*(?P<value>.*(?:\n[ \t].*)*)", re.MULTILINE)
_PERMISSIVE = re.compile(
    r"\b(MIT|Expat|X11|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|Biopython License|Unlicense|Zlib)\b"
    r"|\b(Public[- ]Domain|BSL|Boost|CC0|curl|PostgreSQL|libpng|OpenSSL)\b"
    r"|Biopython-License|BSD-\d|MIT-CMU|HPND",
    re.IGNORECASE,
)
_RESTRICTIVE = re.compile(
    r"\b(A?GPL|LGPL|General Public|[EM]PL|CDDL|SSPL|Artistic|CC-BY|BUSL|Commons Clause|Proprietary|non-?free)",
    re.IGNORECASE,
)
_GRANTS = {  # the beginnings of licences that packages often do not name
    "Permission is hereby granted, free of charge": "MIT",
    "Redistribution and use in source and binary forms": "BSD",
}
_EITHER = re.compile(r"(?<!\s)\s+or\s+", re.IGNORECASE)
_BOTH = re.compile(r"(?<!\s)\s+and\s+|,", re.IGNORECASE)


@dataclass(slots=True)
class Source:
    """The origin of a package, and how much of it was kept."""

    name: str
    version: str
    licence: str
    archive: str
    sha256: str
    language: str
    files: int = 0
    bytes: int = 0
    skipped: str = ""  # why the whole package was skipped

    @classmethod
    def of(cls, archive: Path, name: str, version: str, licence: str, language: str) -> Source:
        """The source that an archive holds."""
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        return cls(name, version, licence, archive.name, digest, language)


def _fetch_archive(command: Sequence[str], folder: Path, pattern: str) -> Path:
    """Return the archive in a package's folder, running the command to fetch it if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob(pattern)):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if not any(folder.glob(pattern)):
            raise UserError(
                f"{command[0]} fetched no archive of {folder.name} ({done.stderr.strip()[-300:]}); "
                "check the network and the package's version, then run this again"
            )
    return min(folder.glob(pattern))


def _read_archive(archive: Path, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    """Return the wanted files of a tar archive or Debian package, sorted, without the name of its top folder."""
    data = archive.read_bytes()
    if archive.suffix == ".deb":
        command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        data = subprocess.run(command, capture_output=True, check=True).stdout
    files = []
    # As a stream: seeking backwards in a compressed archive is slow.
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as opened:
        for member in opened:
            name = member.name.removeprefix("./").partition("/")[2]
            if member.isfile() and wanted(name) and (file := opened.extractfile(member)):
                files.append((name, file.read()))
    return sorted(files)


def open_wheel(requirement: str, archives: Path) -> tuple[Source, Files]:
    """Open a package's wheel, fetching it without its dependencies if necessary."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", _PYTHON, *(f"--platform={p}" for p in _PLATFORMS), "--dest", ".", requirement]
    wheel = _fetch_archive(command, archives / requirement, "*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(archive.namelist())
        described = next(n for n in names if n.endswith(".dist-info/METADATA") and n.count("/") == 1)
        metadata = email.parser.Parser().parsestr(archive.read(described).decode("utf-8"))
        licence = licence_of(metadata)
        for name in names:  # if the metadata names no licence, by the text of the licence file
            if not licence and ".dist-info/" in name and "LICEN" in name.upper():
                text = " ".join(archive.read(name).decode("utf-8", "replace").split())
                licence = next((granted for words, granted in _GRANTS.items() if words in text), "")
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
    paths = {path.relative_to(lib): path for path in sorted(lib.rglob("*.py"))}
    left_out = ("site-packages", "test")
    files = [(name.as_posix(), path.read_bytes()) for name, path in paths.items() if name.parts[0] not in left_out]
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = platform.python_version()
    archive = f"Lib of {platform.python_implementation()} {version}"
    return Source(STANDARD_LIBRARY, version, "PSF-2.0", archive, digest.hexdigest(), "python"), files


def open_npm(requirement: str, archives: Path) -> tuple[Source, Files]:
    """Open a package, fetching it if necessary."""
    command = ["npm", "pack", "--silent", "--ignore-scripts", requirement]
    archive = _fetch_archive(command, archives / requirement.replace("/", "+"), "*.tgz")
    wanted = (*_TYPESCRIPT, *_JAVASCRIPT, "package.json")
    contents = dict(_read_archive(archive, lambda name: name.endswith(wanted)))
    facts: dict[str, Any] = json.loads(contents.pop("package.json"))
    stated = facts.get("license") or facts.get("licenses") or ""  # the current form or an old one
    parts = stated if isinstance(stated, list) else [stated]
    licence = " OR ".join(str(part.get("type", "") if isinstance(part, dict) else part) for part in parts)
    source = Source.of(archive, facts["name"], facts["version"], licence, "typescript")
    return source, [(name, contents[name]) for name in select_sources(list(contents))]


def select_sources(names: Sequence[str]) -> list[str]:
    """Select TypeScript in `src` folders, else the more numerous of other TypeScript and JavaScript.

    Most packages contain compiled or bundled code, some also its sources, so folders of build outputs are skipped.
    """
    folders = {name: set(PurePosixPath(name).parts[:-1]) for name in names}
    kept = [name for name in names if not _BUILT & folders[name] and ".min." not in name]
    typescript = [name for name in kept if name.endswith(_TYPESCRIPT) and not name.endswith(_DECLARATIONS)]
    javascript = [name for name in kept if name.endswith(_JAVASCRIPT)]
    ours, theirs = ([name for name in some if "src" in folders[name]] for some in (typescript, javascript))
    return ours or max(typescript, theirs or javascript, key=len)


@dataclass(frozen=True, slots=True)
class Grant:
    """Files, as patterns of their names, and their licence."""

    patterns: tuple[str, ...]
    licence: str

    def covers(self, name: str) -> bool:
        """Whether a file matches; `*` matches slashes too, and a name may have more folders in front."""
        patterns = (some for pattern in self.patterns for some in (pattern, f"*/{pattern}"))
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def open_debian(requirement: str, archives: Path, language: str) -> tuple[Source, Files]:
    """Open a package, fetching it if necessary: binary if it is named `...-dev`, else its source package."""
    into = archives / requirement
    name, version = requirement.split("=")
    if name.endswith("-dev"):
        archive = described = _fetch_archive(["apt-get", "download", "-qq", requirement], into, "*.deb")
    else:  # apt-get needs deb-src lines
        command = ["apt-get", "source", "-qq", "--download-only", "--only-source", requirement]
        described = _fetch_archive(command, into, "*.debian.tar.*")
        archive = min(into.glob("*.orig.tar.*[z2]"))
    texts = _read_archive(described, lambda name: PurePosixPath(name).name == "copyright")
    grants = read_grants(texts[0][1].decode("utf-8", "replace") if texts else "")
    licences = sorted({grant.licence for grant in grants if is_permissive(grant.licence)})
    source = Source.of(archive, name, version, ", ".join(licences), language)
    suffixes = SUFFIXES[language]
    return source, _read_archive(archive, lambda name: name.endswith(suffixes) and is_permitted(name, grants))


def read_grants(text: str) -> list[Grant]:
    """Return the licences of groups of files; the last one that covers a file applies. Empty for other formats."""
    if not _MACHINE_READABLE.search(text):
        return []
    stanzas = [{m["field"].lower(): m["value"] for m in _NAMED.finditer(part)} for part in _STANZA.split(text)]
    return [
        Grant(tuple(stanza["files"].split()), stanza["license"].splitlines()[0].strip())
        for stanza in stanzas
        if "files" in stanza and stanza.get("license", "").strip()
    ]


def is_permitted(name: str, grants: list[Grant]) -> bool:
    """Whether the licence that applies to a file is permissive."""
    licence = next((grant.licence for grant in reversed(grants) if grant.covers(name)), "")
    return is_permissive(licence)


def is_permissive(licence: str) -> bool:
    """Whether one of the licences offered is permissive in all of its parts. Example: `GPL-2+ or ISC`."""
    return any(
        all(_PERMISSIVE.search(part) and not _RESTRICTIVE.search(part) for part in _BOTH.split(offer))
        for offer in _EITHER.split(licence)
    )

"""Debian source packages: a requirement goes in, upstream's files of one language and their licences come out.

Debian states the licence of every file (debian/copyright, https://www.debian.org/doc/packaging-manuals/
copyright-format/1.0/), so files without a permissive licence are skipped one by one. A package whose
copyright file has another format yields nothing. Nothing is built or run.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from spd_lsp.training.corpus.licences import is_wholly_permissive
from spd_lsp.training.corpus.package import FetchedPackage, Source, fetch_archives, read_archive

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


@dataclass(frozen=True, slots=True)
class Grant:
    """Files, as patterns of their names, and their licence."""

    patterns: tuple[str, ...]
    licence: str

    def covers(self, name: str) -> bool:
        """Whether a file matches; `*` matches slashes too, and a name may have more folders in front."""
        return any(
            fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*/{pattern}")
            for pattern in self.patterns
        )


def open_debian(requirement: str, archives: Path, language: str) -> FetchedPackage:
    """Open a package, fetching it if necessary: binary if it is named `...-dev`, else its source package."""
    into = archives / requirement
    if requirement.partition("=")[0].endswith("-dev"):
        archive = described = fetch_archives(
            ["apt-get", "download", "-qq", requirement], requirement, into, "*.deb", "apt-get"
        )[0]
    else:
        command = ["apt-get", "source", "-qq", "--download-only", "--only-source", requirement]
        described = fetch_archives(command, requirement, into, "*.debian.tar.*", "apt-get with deb-src lines")[0]
        archive = min(into.glob("*.orig.tar.*[z2]"))
    grants = read_grants(_copyright_of(described))
    name, version = requirement.split("=")
    source = Source(
        name=name,
        version=version,
        licence=", ".join(sorted({grant.licence for grant in grants if is_wholly_permissive(grant.licence)})),
        archive=archive.name,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        language=language,
    )

    def is_wanted(name: str) -> bool:
        return name.endswith(SUFFIXES[language]) and is_permitted(name, grants)

    return FetchedPackage(source, lambda: read_archive(archive, is_wanted))


def _copyright_of(archive: Path) -> str:
    files = read_archive(archive, lambda name: PurePosixPath(name).name == "copyright")
    return files[0][1].decode("utf-8", "replace") if files else ""


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
    return is_wholly_permissive(licence)

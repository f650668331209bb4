"""Debian source packages: a requirement goes in, upstream's files of one language and their licences come out.

Debian states the licence of every file (debian/copyright, https://www.debian.org/doc/packaging-manuals/
copyright-format/1.0/), so files without a permissive licence are skipped one by one. A package whose
copyright file has another format yields nothing. Nothing is built or run.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from spd_lsp.training.corpus.licences import is_permissive
from spd_lsp.training.corpus.package import Files, Source, fetch_archive, read_archive

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


def open_debian(requirement: str, archives: Path, language: str) -> tuple[Source, Files]:
    """Open a package, fetching it if necessary: binary if it is named `...-dev`, else its source package."""
    into = archives / requirement
    name, version = requirement.split("=")
    if name.endswith("-dev"):
        archive = described = fetch_archive(["apt-get", "download", "-qq", requirement], into, "*.deb")
    else:  # apt-get needs deb-src lines
        command = ["apt-get", "source", "-qq", "--download-only", "--only-source", requirement]
        described = fetch_archive(command, into, "*.debian.tar.*")
        archive = min(into.glob("*.orig.tar.*[z2]"))
    texts = read_archive(described, lambda name: PurePosixPath(name).name == "copyright")
    grants = read_grants(texts[0][1].decode("utf-8", "replace") if texts else "")
    licences = sorted({grant.licence for grant in grants if is_permissive(grant.licence)})
    source = Source.of(archive, name, version, ", ".join(licences), language)
    return source, read_archive(
        archive, lambda name: name.endswith(SUFFIXES[language]) and is_permitted(name, grants)
    )


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

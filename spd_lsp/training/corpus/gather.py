"""Build the corpus from a list of packages by language: folders of source files, and a manifest.

corpus/LANGUAGE/PACKAGE/... holds the files, corpus/sources.json their origin. It knows nothing of tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.training.corpus.filters import Copies, is_skipped
from spd_lsp.training.corpus.packages import (
    STANDARD_LIBRARY,
    SUFFIXES,
    Source,
    is_permissive,
    open_debian,
    open_npm,
    open_standard_library,
    open_wheel,
)

LISTING = Path(__file__).with_name("corpus.txt")
CORPUS_LANGUAGES = ("python", "typescript", *SUFFIXES)  # JavaScript counts as TypeScript


def read_listing(path: Path) -> Mapping[str, list[str]]:
    """Read packages with their versions by language: one a line below `[LANGUAGE]`, `#` for comments."""
    listing: dict[str, list[str]] = {}
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            language = line.strip("[]")
            if language not in CORPUS_LANGUAGES:
                known = ", ".join(CORPUS_LANGUAGES)
                raise UserError(f"unknown language [{language}] in {path}; known are {known}")
            listing[language] = []
        elif line and not line.startswith("#"):
            listing[language].append(line)
    return listing


def gather(listing: Path, archives: Path, corpus: Path) -> Iterator[Source]:
    """Fetch and unpack every listed package, one Source at a time, then write the manifest."""
    copies = Copies()
    sources = []
    for language, requirements in read_listing(listing).items():
        for requirement in requirements:
            if requirement == STANDARD_LIBRARY:
                source, files = open_standard_library()
            elif language == "python":
                source, files = open_wheel(requirement, archives)
            elif language == "typescript":
                source, files = open_npm(requirement, archives)
            else:
                source, files = open_debian(requirement, archives, language)
            if is_permissive(source.licence):
                folder = corpus / language / folder_name(requirement)
                for name, raw in files:
                    content = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
                    if not is_skipped(name, content) and not copies.is_copy(content):
                        (folder / name).parent.mkdir(parents=True, exist_ok=True)
                        (folder / name).write_bytes(content)
                        source.files += 1
                        source.bytes += len(content)
            else:
                source.skipped = "its licence is not known to be permissive"
            sources.append(source)
            yield source
    manifest = json.dumps([asdict(source) for source in sources], indent=1)
    (corpus / "sources.json").write_text(manifest + "\n", encoding="utf-8")


def folder_name(requirement: str) -> str:
    """Return the name of a package's folder. Example: `@trpc/server@11.4.3` -> `trpc+server`."""
    return re.split(r"=|(?<!^)@", requirement)[0].lstrip("@").replace("/", "+")

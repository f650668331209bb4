"""Build the corpus from a list of packages by language: folders of source files, and a manifest.

corpus/LANGUAGE/PACKAGE/... holds the files, corpus/sources.json their origin. It knows nothing of tokens.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.training.corpus.copies import Copies
from spd_lsp.training.corpus.debian import SUFFIXES, open_debian
from spd_lsp.training.corpus.filters import normalise_text, skip_reason
from spd_lsp.training.corpus.licences import is_permissive
from spd_lsp.training.corpus.npm import open_npm
from spd_lsp.training.corpus.package import FetchedPackage, Files, Source
from spd_lsp.training.corpus.wheels import STANDARD_LIBRARY, open_wheel, standard_library

CORPUS_LANGUAGES = ("python", "typescript", *SUFFIXES)  # JavaScript counts as TypeScript
Listing = Mapping[str, list[str]]  # language -> the packages to read, each with its version


def read_listing(path: Path) -> Listing:
    """Read a list of packages, one per line below `[LANGUAGE]`, `#` for comments."""
    listing: dict[str, list[str]] = {}
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            language = line.strip("[]")
            if language not in CORPUS_LANGUAGES:
                raise UserError(
                    f"unknown language [{language}] in {path}; known are {', '.join(CORPUS_LANGUAGES)}"
                )
            listing[language] = []
        elif line and not line.startswith("#"):
            listing[language].append(line)
    return listing


def _open_package(requirement: str, language: str, archives: Path) -> FetchedPackage:
    """Fetch a package from its language's registry, unless it was fetched before."""
    match language:
        case "python":
            return open_wheel(requirement, archives)
        case "typescript":
            return open_npm(requirement, archives)
        case _:
            return open_debian(requirement, archives, language)


def gather(
    listing: Path, archives: Path, corpus: Path, library: bool = True, held_out: Iterable[Path] = ()
) -> Iterator[Source]:
    """Fetch and unpack every listed package, one Source at a time, then the manifest.

    `library` adds Python's standard library. Files like those in the folders `held_out` are left out.
    """
    copies = Copies()
    sources = []
    for path in (path for folder in held_out for path in sorted(folder.rglob("*")) if path.is_file()):
        copies.skip_reason(normalise_text(path.read_bytes()))
    for language, requirements in read_listing(listing).items():
        for requirement in requirements:
            package = _open_package(requirement, language, archives)
            sources.append(_write_package(package, corpus / language / folder_name(requirement), copies))
            yield sources[-1]
    if library:
        sources.append(_write_package(standard_library(), corpus / "python" / STANDARD_LIBRARY, copies))
        yield sources[-1]
    manifest = json.dumps([asdict(source) for source in sources], indent=1)
    (corpus / "sources.json").write_text(manifest + "\n", encoding="utf-8")


def folder_name(requirement: str) -> str:
    """Return the name of a package's folder. Example: that of `@trpc/server@11.4.3` is `trpc+server`."""
    return re.split(r"=|(?<!^)@", requirement)[0].lstrip("@").replace("/", "+")


def _write_package(package: FetchedPackage, folder: Path, copies: Copies) -> Source:
    """Write the package's useful files to `folder`; the result counts the skipped ones by reason."""
    source = package.source
    if is_permissive(source.licence):
        _write_files(source, package.read(), folder, copies)
    else:
        source.skipped = "its licence is not known to be permissive"
    return source


def _write_files(source: Source, files: Files, folder: Path, copies: Copies) -> None:
    """Write the useful files to `folder`, and record in `source` how many were skipped and why."""
    skipped: Counter[str] = Counter()
    for name, raw in files:
        content = normalise_text(raw)
        if reason := skip_reason(name, content) or copies.skip_reason(content):
            skipped[reason] += 1
            continue
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        source.files += 1
        source.bytes += len(content)
    source.left_out = dict(sorted(skipped.items()))

"""The corpus: a list of packages by language goes in, folders of source files and a manifest come out.

corpus/LANGUAGE/PACKAGE/... holds what is kept, corpus/sources.json where it came from. It knows nothing of tokens.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.training.corpus.copies import Copies
from spd_lsp.training.corpus.debian import SUFFIXES, open_debian
from spd_lsp.training.corpus.filters import refuse, tidy
from spd_lsp.training.corpus.licences import is_permissive
from spd_lsp.training.corpus.npm import open_npm
from spd_lsp.training.corpus.package import Files, Package, Source
from spd_lsp.training.corpus.wheels import STANDARD_LIBRARY, open_wheel, standard_library

LANGUAGES = ("python", "typescript", *SUFFIXES)  # JavaScript counts as TypeScript
Listing = Mapping[str, list[str]]  # language -> the packages to read, each with its version


def read_listing(path: Path) -> Listing:
    """The packages named in a list, one a line below `[LANGUAGE]`, `#` for comments."""
    listing: dict[str, list[str]] = {}
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            language = line.strip("[]")
            if language not in LANGUAGES:
                raise UserError(f"expected one of {', '.join(LANGUAGES)} in {path}, found [{language}]")
            listing[language] = []
        elif line and not line.startswith("#"):
            listing[language].append(line)
    return listing


def _open_package(requirement: str, language: str, archives: Path) -> Package:
    """Fetch a package from where its language's packages are, unless it is there."""
    match language:
        case "python":
            return open_wheel(requirement, archives)
        case "typescript":
            return open_npm(requirement, archives)
        case _:
            return open_debian(requirement, archives, language)


def gather(listing: Path, archives: Path, corpus: Path, library: bool = True) -> Iterator[Source]:
    """Fetch and unpack every listed package, one Source at a time, then the manifest.

    Python's standard library comes with them, unless `library` says otherwise.
    """
    copies, sources = Copies(), []
    for language, requirements in read_listing(listing).items():
        for requirement in requirements:
            package = _open_package(requirement, language, archives)
            sources.append(keep(package, corpus / language / folder_name(requirement), copies))
            yield sources[-1]
    if library:
        sources.append(keep(standard_library(), corpus / "python" / STANDARD_LIBRARY, copies))
        yield sources[-1]
    manifest = json.dumps([asdict(source) for source in sources], indent=1)
    (corpus / "sources.json").write_text(manifest + "\n", encoding="utf-8")


def folder_name(requirement: str) -> str:
    """What a package's folder is called. Example: that of `@trpc/server@11.4.3` is `trpc+server`."""
    return re.split(r"=|(?<!^)@", requirement)[0].lstrip("@").replace("/", "+")


def keep(package: Package, folder: Path, copies: Copies) -> Source:
    """Write the files worth reading under folder; what is returned says how many were left out and why."""
    source = package.source
    if is_permissive(source.licence):
        _keep_files(source, package.read(), folder, copies)
    else:
        source.skipped = "its licence is not known to be permissive"
    return source


def _keep_files(source: Source, files: Files, folder: Path, copies: Copies) -> None:
    """Write the files worth reading under folder and note in source how many were left out and why."""
    left_out: Counter[str] = Counter()
    for name, raw in files:
        content = tidy(raw)
        if reason := refuse(name, content) or copies.refuse(content):
            left_out[reason] += 1
            continue
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        source.files += 1
        source.bytes += len(content)
    source.left_out = dict(sorted(left_out.items()))

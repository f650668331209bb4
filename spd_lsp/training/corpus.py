"""The Python files the starter learns from: package names go in, a folder of source files and a manifest come out.

It knows archives, licences and which files are worth reading. It knows nothing of tokens or models.
"""

from __future__ import annotations

import email.message
import email.parser
import hashlib
import json
import platform
import re
import subprocess
import sysconfig
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from ngram_builders import programs
from spd_lsp.settings import UserError

LARGEST_FILE = 200_000  # bytes
LONGEST_LINE = 1_000  # characters: beyond it a file is data or minified
STANDARD_LIBRARY = "python-stdlib"

VENDORED = frozenset(
    {"_vendor", "_vendored", "vendor", "vendored", "third_party", "external", "externals", "_external"}
    | {"extern", "array_api_compat", "array_api_extra"}
)
LEFT_OUT_OF_LIB = frozenset({"site-packages", "test"})

PERMISSIVE = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|Biopython License|Unlicense|Zlib|Public Domain)\b"
    r"|Biopython-License|MIT-CMU|HPND",
    re.IGNORECASE,
)
RESTRICTIVE = re.compile(r"\b(A?GPL|LGPL|General Public|EPL|SSPL|Commons Clause|Proprietary)", re.IGNORECASE)
GENERATED = re.compile(
    r"@generated|auto(matically)?[- ]?generated|do not edit|^#.*\bgenerated (by|from|on)"
    r"|generated from (?:(?!generated from ).)* with",
    re.IGNORECASE | re.MULTILINE,
)
GRANTS = {  # how the licences that are often left unnamed begin
    "Permission is hereby granted, free of charge": "MIT",
    "Redistribution and use in source and binary forms": "BSD",
}
STRINGS = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")


@dataclass(slots=True, kw_only=True)
class Source:
    """One package as it was used: where it came from and how much of it was kept."""

    name: str
    version: str
    licence: str
    archive: str
    sha256: str
    files: int = 0
    bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    skipped: str = ""  # why the whole package was left out


def requirements(listing: Path) -> list[str]:
    """Read the packages named in a list, one a line, `#` for comments."""
    lines = (line.strip() for line in listing.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def download(requirement: str, folder: Path, python: str = "3.13") -> Path:
    """Fetch one wheel without its dependencies, or return the one fetched before. Nothing is built or run."""
    into = folder / requirement  # with its version: another pin is another archive
    into.mkdir(parents=True, exist_ok=True)
    if not (found := sorted(into.glob("*.whl"))):
        platforms = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "any")
        command = programs.python("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
        command += ["--python-version", python, *(f"--platform={p}" for p in platforms)]
        command += ["--dest", str(into.absolute()), requirement]
        finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=programs.AWAY)
        found = sorted(into.glob("*.whl"))
        if finished.returncode or not found:
            raise UserError(
                f"expected a wheel of {requirement}, found none (pip exited {finished.returncode}: "
                f"{last_line(finished.stderr)}); check the network and that pip is installed, then run this again"
            )
    return found[0]


def last_line(text: str) -> str:
    """What a program said last."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def describe(wheel: Path) -> Source:
    """Name, version, licence and checksum of a wheel, from its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA") and n.count("/") == 1)
        metadata = email.parser.Parser().parsestr(archive.read(name).decode("utf-8"))
        licence = licence_of(metadata) or licence_granted(archive)
    return Source(
        name=str(metadata["Name"]),
        version=str(metadata["Version"]),
        licence=licence,
        archive=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )


def licence_of(metadata: email.message.Message) -> str:
    """The licence as the package states it: expression, else classifiers, else the first line of the text."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [str(c) for c in metadata.get_all("Classifier", []) if str(c).startswith("License ::")]
    if classifiers:
        return ", ".join(c.split(" :: ")[-1] for c in classifiers)
    return next((line.strip() for line in str(metadata["License"] or "").splitlines() if line.strip()), "")


def licence_granted(archive: zipfile.ZipFile) -> str:
    """The licence that a wheel's licence file grants, when the metadata names none."""
    for name in archive.namelist():
        if ".dist-info/" in name and "LICEN" in name.upper():
            text = " ".join(archive.read(name).decode("utf-8", "replace").split())
            if grant := next((licence for words, licence in GRANTS.items() if words in text), ""):
                return f"{grant} (by its {PurePosixPath(name).name} file)"
    return ""


def is_permissive(licence: str) -> bool:
    """Whether a stated licence is permissive and names no other kind beside it."""
    return bool(PERMISSIVE.search(licence)) and not RESTRICTIVE.search(licence)


def wheel_files(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """The Python files of a wheel, in a stable order."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".py"):
                yield name, archive.read(name)


def library_files(lib: Path) -> Iterator[tuple[str, bytes]]:
    """The interpreter's own modules, without what was installed beside them and without its tests."""
    for path in sorted(lib.rglob("*.py")):
        name = path.relative_to(lib)
        if name.parts[0] not in LEFT_OUT_OF_LIB:
            yield name.as_posix(), path.read_bytes()


def is_table(text: str) -> bool:
    """Whether most lines hold only literals. Example: `'a': 1,` is such a line, `a = f(1)` is not."""
    lines = [line for line in text.splitlines() if line.strip()]
    bare = sum(1 for line in lines if not any(c.isalpha() for c in STRINGS.sub("", line)) and len(line) > 8)
    return bare > 0.5 * len(lines)


def refuse(name: str, content: bytes, seen: set[bytes]) -> str:
    """Why a file is left out, or nothing when it is to be kept."""
    if VENDORED.intersection(PurePosixPath(name).parts):
        return "vendored"
    if len(content) > LARGEST_FILE:
        return "large"
    if not content.strip():
        return "empty"
    if hashlib.sha256(content).digest() in seen:
        return "duplicate"
    return refuse_text(content)


def refuse_text(content: bytes) -> str:
    """Why a file's text is left out, or nothing when it is to be kept."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8"
    if "\0" in text:
        return "not text"
    if GENERATED.search("\n".join(text.splitlines()[:12])):
        return "generated"
    if max(map(len, text.splitlines()), default=0) > LONGEST_LINE or is_table(text):
        return "data"
    return ""


def keep(source: Source, files: Iterable[tuple[str, bytes]], folder: Path, seen: set[bytes]) -> None:
    """Write the files worth reading under folder and note in source how many were left out and why."""
    left_out: Counter[str] = Counter()
    for name, content in files:
        if reason := refuse(name, content, seen):
            left_out[reason] += 1
            continue
        seen.add(hashlib.sha256(content).digest())
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        source.files += 1
        source.bytes += len(content)
    source.left_out = dict(sorted(left_out.items()))


def standard_library(lib: Path) -> Source:
    """Describe the interpreter's library; its checksum covers every file's name and content, in order."""
    digest = hashlib.sha256()
    for name, content in library_files(lib):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = platform.python_version()
    archive = f"Lib of {platform.python_implementation()} {version}"
    return Source(
        name=STANDARD_LIBRARY, version=version, licence="PSF-2.0", archive=archive, sha256=digest.hexdigest()
    )


def gather(listing: Path, archives: Path, corpus: Path) -> Iterator[Source]:
    """Fetch and unpack every listed package and the standard library, one Source at a time, then the manifest."""
    seen: set[bytes] = set()
    sources = []
    for requirement in requirements(listing):
        sources.append(gather_package(requirement, archives, corpus, seen))
        yield sources[-1]
    lib = Path(sysconfig.get_path("stdlib"))
    sources.append(standard_library(lib))
    keep(sources[-1], library_files(lib), corpus / STANDARD_LIBRARY, seen)
    yield sources[-1]
    manifest = json.dumps([asdict(source) for source in sources], indent=1)
    (corpus / "sources.json").write_text(manifest + "\n", encoding="utf-8")


def gather_package(requirement: str, archives: Path, corpus: Path, seen: set[bytes]) -> Source:
    """Fetch and unpack one package, or say in its Source why it was left out."""
    wheel = download(requirement, archives)
    source = describe(wheel)
    if is_permissive(source.licence):
        keep(source, wheel_files(wheel), corpus / requirement.split("==")[0], seen)
    else:
        source.skipped = "its licence is not known to be permissive"
    return source

"""Repositories' folders -> packages of source files, and seeded places in them where a cursor might stand.

A place is kept as the file's digest, a byte offset and its stratum, so that any model can be asked at the same
places. Knows no models and no tokens. The same folders and seed give the same places.
"""

from __future__ import annotations

import hashlib
import itertools
import keyword
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.language_ids import language_of
from spd_lsp.completion.languages import LANGUAGES
from spd_lsp.evaluation.code_lines import CODE, LEXEME, Line, code_lines

LINE_START, AFTER_TRIGGER, MID_IDENTIFIER, RANDOM_BYTE = STRATA = (
    "line start",
    "after trigger",
    "mid-identifier",
    "random byte",
)
PRIMARY = (LINE_START, AFTER_TRIGGER)
LENGTHS = {"1-4": range(1, 5), "5-9": range(5, 10), "10-24": range(10, 25)}  # code tokens of the target
_LONGEST_TARGET = 24
FILES = 25  # of a package: other files tell more than other places in the same one
_SHARE_OF_RANDOM = 0.6  # of the files have a place at a random byte: 20 % of the other three strata
SMALLEST, LARGEST = 200, 200_000  # characters of a file with places

# What makes editors ask: after some signs and words. One blank behind them belongs to them.
TRIGGER = re.compile(r"[.(\[]|(?<![=!<>])=(?!=) ?|, ?|\b(?:return|in|if)\b ?")
_IDENTIFIER = re.compile(r"[^\W\d]\w{4,}")


@dataclass(frozen=True)
class Source:
    """A source file."""

    package: str
    name: str  # its path within the package's folder
    language: str
    text: str

    @cached_property
    def sha256(self) -> str:
        """The digest of its text in UTF-8."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Package:
    """A repository or a package: one neighbourhood of files."""

    name: str
    folder: Path
    sources: tuple[Source, ...]  # each text once


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a file, and what a person wrote there."""

    package: str
    file: str
    sha256: str
    offset: int  # bytes
    stratum: str
    at: int  # the same place in characters
    line_start: int
    line_end: int  # behind its line break
    target: str  # the rest of the line, without white space at its end
    line: str  # without white space around it

    @property
    def key(self) -> str:
        """What tells it from all other places."""
        return f"{self.sha256}:{self.offset}:{self.stratum}"


def read_packages(
    folders: Sequence[Path], report: Callable[[int, int], None] = lambda a, b: None
) -> list[Package]:
    """The sources that `build-ngrams` would count, each text once a package; refuses folders without."""
    packages = []
    for number, folder in enumerate(folders):
        report(number, len(folders))
        packages.append(_read_package(folder))
    report(len(folders), len(folders))
    if repeated := {p.name for p in packages if sum(q.name == p.name for q in packages) > 1}:
        raise UserError(f"expected folders of different names, found {', '.join(sorted(repeated))} more than once")
    return packages


def _read_package(folder: Path) -> Package:
    """The sources of one folder, in the order of their names."""
    name = folder.resolve().name
    seen: set[str] = set()
    sources = []
    for path in sorted(file.path for file in survey(folder).files):
        text, fault = read_source_text(path)
        language = language_of(Path(path).name)
        if fault is None and language is not None and text not in seen:
            seen.add(text)
            inner = Path(path).resolve().relative_to(folder.resolve()).as_posix()
            sources.append(Source(name, inner, language, text))
    if len(sources) < 2:
        raise UserError(f"expected two source files or more in {folder}, found {len(sources)}; name a repository")
    return Package(name, folder, tuple(sources))


def sample(
    packages: Sequence[Package],
    seed: int = 0,
    files: int = FILES,
    languages: Sequence[str] = ("python",),
    rounds: int = 1,
) -> list[Cursor]:
    """Places of all strata, at most `rounds` of each stratum a file and `files` files a package.

    The files of all packages take turns, so that the first N places are spread like all of them.
    """
    chosen = [_places_of(package, seed, files, languages, rounds) for package in packages]
    turns = itertools.zip_longest(*chosen, fillvalue=[])
    found = [cursor for turn in turns for cursors in turn for cursor in cursors]
    if not found:
        raise UserError(
            f"expected files of {' or '.join(languages)} with lines of code, found none; name other repositories"
        )
    return found


def _places_of(
    package: Package, seed: int, files: int, languages: Sequence[str], rounds: int
) -> list[list[Cursor]]:
    """The places of each chosen file of a package."""
    wanted = [s for s in package.sources if s.language in languages and s.language in LANGUAGES]
    wanted = [s for s in wanted if SMALLEST <= len(s.text) <= LARGEST]
    random.Random(f"{seed}/{package.name}").shuffle(wanted)
    found = (list(_places_in(source, random.Random(f"{seed}/{source.sha256}"), rounds)) for source in wanted)
    return list(itertools.islice(filter(None, found), files))


def _places_in(source: Source, rng: random.Random, rounds: int) -> Iterator[Cursor]:
    """At most `rounds` places of each stratum in one file, each in a line of its own."""
    lines = code_lines(source.text, source.language)
    rng.shuffle(lines)
    for stratum in STRATA * rounds:
        if stratum == RANDOM_BYTE and rng.random() >= _SHARE_OF_RANDOM:
            continue
        for number, line in enumerate(lines):
            columns = [column for column in _COLUMNS[stratum](line, rng) if fits(line.text[column:])]
            if columns:
                del lines[number]
                yield _cursor_at(source, line, rng.choice(columns), stratum)
                break


def fits(target: str) -> bool:
    """Whether a target has something to complete and can be completed within the limit of tokens."""
    return 1 <= len(LEXEME.findall(target)) <= _LONGEST_TARGET


def _cursor_at(source: Source, line: Line, column: int, stratum: str) -> Cursor:
    """A place in a line of a file."""
    at = line.start + column
    end = source.text.find("\n", at) + 1 or len(source.text)
    return Cursor(
        package=source.package,
        file=source.name,
        sha256=source.sha256,
        offset=len(source.text[:at].encode("utf-8", "surrogatepass")),
        stratum=stratum,
        at=at,
        line_start=line.start,
        line_end=end,
        target=line.text[column:],
        line=line.text.strip(),
    )


def _first_column(line: Line, rng: random.Random) -> list[int]:
    """Behind the indentation."""
    return [line.indentation]


def _behind_triggers(line: Line, rng: random.Random) -> list[int]:
    """Behind each sign or word that makes editors ask, outside of strings and comments."""
    return [match.end() for match in TRIGGER.finditer(line.text) if line.kinds[match.start()] == CODE]


def _within_identifiers(line: Line, rng: random.Random) -> list[int]:
    """Behind the first one to three characters of a name of five or more, a random number for each."""
    names = [m for m in _IDENTIFIER.finditer(line.text) if line.kinds[m.start()] == CODE]
    return [m.start() + rng.randint(1, 3) for m in names if not keyword.iskeyword(m.group())]


def _random_byte(line: Line, rng: random.Random) -> list[int]:
    """Before the character that holds a random byte of the line, its first one apart."""
    content = line.text[line.indentation :].encode("utf-8", "surrogatepass")
    place = rng.randrange(1, len(content))
    before = sum((byte & 0xC0) != 0x80 for byte in content[: place + 1]) - 1  # whole characters
    return [line.indentation + before]


_COLUMNS: dict[str, Callable[[Line, random.Random], list[int]]] = {
    LINE_START: _first_column,
    AFTER_TRIGGER: _behind_triggers,
    MID_IDENTIFIER: _within_identifiers,
    RANDOM_BYTE: _random_byte,
}


def length_of(target: str) -> str:
    """The bin of a target's length in code tokens. Example: `foo(x)` -> `1-4`"""
    tokens = len(LEXEME.findall(target))
    return next(name for name, bounds in LENGTHS.items() if tokens in bounds)

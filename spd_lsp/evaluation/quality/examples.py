"""Sample held-out examples from repositories: a cursor position and the text that was written there.

An example is a file's digest, a byte offset and a stratum, so that any model can be evaluated on the same ones.
The same folders and seed give the same examples. Knows no models and no tokens.
"""

from __future__ import annotations

import hashlib
import itertools
import keyword
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.language_ids import language_of
from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.evaluation.quality.code_lines import CODE, LEXEME, CodeLine, code_lines

LINE_START, AFTER_TRIGGER, MID_IDENTIFIER = STRATA = ("line start", "after trigger", "mid-identifier")
PRIMARY = (LINE_START, AFTER_TRIGGER)
_MAX_TARGET_TOKENS = 24
_DEFAULT_FILES = 25  # of a package; more files tell more than more examples of one file
_FILE_CHARACTERS = range(200, 200_001)  # files of other sizes are skipped

# Where editors request completions: after some punctuation and keywords, and one blank behind them.
_TRIGGER = re.compile(r"[.(\[]|(?<![=!<>])=(?!=) ?|, ?|\b(?:return|in|if)\b ?")
_IDENTIFIER = re.compile(r"[^\W\d]\w{4,}")


@dataclass(frozen=True)
class PackageFile:
    """A source file of a package."""

    package: str
    name: str  # its path within the package's folder
    language: str
    text: str

    @cached_property
    def sha256(self) -> str:
        """The digest of the text in UTF-8."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class PackageFiles:
    """A repository or package that examples are drawn from."""

    name: str
    files: tuple[PackageFile, ...]  # each text once


@dataclass(frozen=True, slots=True)
class Example:
    """A cursor position in a file, and the text that follows it on its line."""

    package: str
    file: str
    sha256: str
    offset: int  # bytes
    stratum: str
    at: int  # the same position in characters
    line_start: int
    line_end: int  # after the line break
    target: str  # the rest of the line, without trailing white space
    line: str  # without surrounding white space

    @property
    def key(self) -> str:
        """The identity of this example."""
        return f"{self.sha256}:{self.offset}:{self.stratum}"


def read_packages(folders: Sequence[Path]) -> list[PackageFiles]:
    """Read the files that `build-ngrams` would count; raise UserError for a folder with fewer than two."""
    packages: dict[str, PackageFiles] = {}
    for folder in map(Path.resolve, folders):
        if folder.name in packages:
            raise UserError(f"two folders are called {folder.name}; results are kept by name, so rename one")
        files: dict[str, PackageFile] = {}  # by text
        for path in sorted(file.path for file in survey(folder).files):
            text, fault = read_source_text(path)
            language = language_of(Path(path).name)
            if fault is None and language is not None and text not in files:
                inner = Path(path).resolve().relative_to(folder).as_posix()
                files[text] = PackageFile(folder.name, inner, language, text)
        if len(files) < 2:
            raise UserError(f"{folder} has {len(files)} source files, at least two are needed; name a repository")
        packages[folder.name] = PackageFiles(folder.name, tuple(files.values()))
    return list(packages.values())


def sample_examples(
    packages: Sequence[PackageFiles],
    seed: int = 0,
    files: int = _DEFAULT_FILES,
    languages: Sequence[str] = ("python",),
) -> list[Example]:
    """Sample at most one example of each stratum from a file, and at most `files` files from a package.

    The files of all packages take turns, so that the first N examples are spread like all of them.
    """
    by_package = []
    for package in packages:
        eligible = [f for f in package.files if f.language in languages and f.language in LANGUAGES]
        eligible = [f for f in eligible if len(f.text) in _FILE_CHARACTERS]
        random.Random(f"{seed}/{package.name}").shuffle(eligible)
        sampled = (list(_file_examples(file, random.Random(f"{seed}/{file.sha256}"))) for file in eligible)
        by_package.append(list(itertools.islice(filter(None, sampled), files)))
    turns = itertools.zip_longest(*by_package, fillvalue=[])
    examples = [example for turn in turns for of_file in turn for example in of_file]
    if not examples:
        raise UserError(f"no {' or '.join(languages)} files with lines of code; name other repositories")
    return examples


def _file_examples(file: PackageFile, rng: random.Random) -> Iterator[Example]:
    """At most one example of each stratum, each on a line of its own."""
    lines = code_lines(file.text, file.language)
    rng.shuffle(lines)
    for stratum in STRATA:
        for number, line in enumerate(lines):
            columns = [
                column
                for column in _columns(line, stratum, rng)
                if 1 <= len(LEXEME.findall(line.text[column:])) <= _MAX_TARGET_TOKENS
            ]
            if columns:
                del lines[number]
                column = rng.choice(columns)
                at = line.start + column
                yield Example(
                    package=file.package,
                    file=file.name,
                    sha256=file.sha256,
                    offset=len(file.text[:at].encode("utf-8", "surrogatepass")),
                    stratum=stratum,
                    at=at,
                    line_start=line.start,
                    line_end=file.text.find("\n", at) + 1 or len(file.text),
                    target=line.text[column:],
                    line=line.text.strip(),
                )
                break


def _columns(line: CodeLine, stratum: str, rng: random.Random) -> list[int]:
    """Return the columns after the indentation, after each trigger, or one to three characters into long names."""
    if stratum == LINE_START:
        return [line.indentation]
    if stratum == AFTER_TRIGGER:
        return [match.end() for match in _TRIGGER.finditer(line.text) if line.kinds[match.start()] == CODE]
    names = [m for m in _IDENTIFIER.finditer(line.text) if line.kinds[m.start()] == CODE]
    return [m.start() + rng.randint(1, 3) for m in names if not keyword.iskeyword(m.group())]

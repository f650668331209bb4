"""Open documents: the text that may be counted, and the names that complete a word.

In: texts and a cursor, and the files of tables. Out: names, the likeliest first: those of open documents, of the
modules that a document imports, and of lists of imported names. Imported modules are those that tables count, as
they are now: ignored and generated files and lines with secrets bring no names. Knows neither LSP nor n-grams.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ngram_builders.scratch import file_stamp
from ngram_builders.sources.filters import MAX_SOURCE_BYTES, decode_source, read_source_text
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, related_languages
from ngram_builders.sources.masking import find_secrets
from ngram_builders.sources.secret_files import is_secret
from spd_lsp.ngrams.table_files import TableFiles

if TYPE_CHECKING:
    from spd_lsp.ngrams.serving_tables import OpenFiles

NAME = re.compile(r"[^\W\d]\w{2,}")
_BEGUN_NAME = re.compile(r"(?<!\w)[^\W\d]\w+\Z")  # of two letters at least
_LEXEME_BACKWARDS = re.compile(r"[ \t]*(\w+|[^\w\s])")  # the last one of a reversed text, in linear time
_MIN_PROBABILITY = 0.01  # a word below this is not worth a draft's place
_MAX_NAME_LENGTH = 80
_NAME_REACH = 50_000  # characters on each side of the cursor that are searched for names
_KEY_REACH = 40_000  # characters of the longest private key, which may begin above them
_MAX_ALIKE = 1_500  # names of other files that begin alike; of more, none is likely enough to be offered
_OTHER_WEIGHT = 0.1  # of all names in other open documents, against one occurrence in this one
_IMPORTED_WEIGHT = 0.5  # of all names in the modules that it imports
_NEW_WEIGHT = 0.15  # of a name that stands nowhere yet
_INDEXED_TEXTS = 128  # whose names are kept
_IMPORT = re.compile(
    r"^[ \t]*(?:from|import|export|include|#[ \t]*include|require(?:_relative|_once)?|use|pub|mod|source"
    r"|(?:const|let|var|local)\b[^\n]{0,200}\brequire|\}[ \t]*from)\b([^\n]{1,400})",
    re.MULTILINE,
)
_DEFINED = re.compile(  # at the top of a module
    r"^(?:export[ \t]+)?(?:default[ \t]+|async[ \t]+|abstract[ \t]+|declare[ \t]+)?"
    r"(?:class|def|function|const|let|var|interface|type|enum)[ \t]+([^\W\d]\w*)"
    r"|^([^\W\d]\w*)[ \t]*(?::[^=\n]*)?=(?!=)|^export[ \t]*\{([\w, \t]+)",
    re.MULTILINE,
)
# By a package from its modules.
_TAKEN = re.compile(r"^from[ \t][^\n]*?\bimport\b(?:[ \t]*\(([\w,\s]+)|([\w, \t]+))", re.MULTILINE)
_NOT_ALL = re.compile(r"^from[ \t][^\n]*\bimport[ \t]*\*|^__all__[ \t]*(?:\+|\.)", re.MULTILINE)
_MODULE_IMPORT = re.compile(r"^import[ \t]+(\w+)", re.MULTILINE)
_ALL = re.compile(r"^__all__[^\n=]*=\s*[\[(]([^\])]*)", re.MULTILINE)
_LIST_REACH = 500  # characters of a list of imported names
_MODULE = re.compile(r"(?<![\w./:-])[\w./:-]*\w|\.+")  # tried once a run of these, so in linear time
_INNER_FILES = ("", f"{os.sep}__init__", f"{os.sep}index", f"{os.sep}mod")  # of a module, or a folder that is one
_MAX_IMPORT_LINES = 100
_MAX_STEMS = 400  # of all import lines: a crafted one may name thousands
_MAX_DEPTH = 12  # folders of a module's path, and above the file that imports it
_MAX_MODULES = 32  # of a file
_MAX_BYTES = 200_000  # of a module; longer ones are hardly written by hand
_MAX_TEXTS = 64  # modules that are kept


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """An open document at one moment."""

    name: str  # identifies the document, such as its URI
    path: Path | None
    language: str | None
    text: str

    def matching_names(
        self,
        cursor: int,
        others: Callable[[str], Iterable[str]] = lambda start: (),
        imported: Iterable[str] = (),
    ) -> Mapping[str, float]:
        """Return the names that the word at the cursor begins, likeliest first, and the probability of each.

        A name is the likelier the more often it stands behind the same sign or word, and the more recently above
        the cursor; those of imports and other documents matter where there is none. Secrets are no names.
        `others` returns the names that begin so in other open documents; `imported`: the texts of modules.
        """
        begun = _BEGUN_NAME.search(self.text, max(0, cursor - _MAX_NAME_LENGTH), cursor)
        if begun is None or re.match(r"\w", self.text[cursor : cursor + 1]):
            return {}
        found = re.compile(rf"(?<!\w){begun[0]}\w+")
        above = found.findall(self.text, max(0, cursor - _NAME_REACH), begun.start())
        below = found.findall(self.text, cursor, cursor + _NAME_REACH)
        left = self.text[max(0, begun.start() - _MAX_NAME_LENGTH) : begun.start()].rpartition("\n")[2]
        reverse = _LEXEME_BACKWARDS.match(left[::-1])
        before = reverse[1][::-1] if reverse else ""
        start = rf"(?<!\w){before}" if before.isalnum() else re.escape(before) or "^"
        around = self.text[max(0, begun.start() - _NAME_REACH) : cursor + _NAME_REACH]
        alike = Counter(re.findall(rf"{start}[ \t]*(?<!\w)({begun[0]}\w+)", around, re.MULTILINE))
        recent = dict.fromkeys([*reversed(above), *below])
        weights = {name: (1 + 5 * alike[name]) ** 0.45 / (1 + age) ** 0.1 for age, name in enumerate(recent)}
        modules = {name for text in imported for name in names_from(sorted_names(text), begun[0])}
        for beginning, weight in ((modules, _IMPORTED_WEIGHT), (others(begun[0]), _OTHER_WEIGHT)):
            new = set(islice(beginning, _MAX_ALIKE + 1)) - weights.keys()
            if len(new) <= _MAX_ALIKE:
                weights |= dict.fromkeys(sorted(new), weight / max(len(new), 1))
        if not weights:
            return {}
        around = self.text[max(0, cursor - _NAME_REACH - _KEY_REACH) : cursor + _NAME_REACH]
        secrets = [around[secret.start : secret.end] for secret in find_secrets(around)]
        total = sum(weights.values()) + _NEW_WEIGHT  # what is missing to 1 is left to names that stand nowhere yet
        likeliest = sorted(weights.items(), key=lambda item: -item[1])
        names = ((name, weight) for name, weight in likeliest if len(name) <= _MAX_NAME_LENGTH)
        return {name: weight / total for name, weight in names if not any(name in one for one in secrets)}


def likely_words(names: Mapping[str, float], words: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the probabilities of names and of the words in drafts, the likeliest first.

    words: those that begin drafts, with the drafts' probabilities. A name in half of the drafts is twelve times as
    likely as one in none. Unlikely words are left out.
    """
    mass: dict[str, float] = {}
    for word, probability in words:
        mass[word] = mass.get(word, 0.0) + probability
    new = max(0.0, 1 - sum(names.values()))
    prior = {**dict.fromkeys(mass, new / 2), **names}
    weights = {word: p * (1 + 300 * mass.get(word, 0.0)) ** 0.5 for word, p in prior.items()}
    total = sum(weights.values()) + new
    likely = ((word, weight / total) for word, weight in weights.items() if weight >= _MIN_PROBABILITY * total)
    return dict(sorted(likely, key=lambda item: -item[1]))


@lru_cache(_INDEXED_TEXTS)
def sorted_names(text: str) -> Sequence[str]:
    """Return the names of a text whose secrets are masked, in order."""
    return sorted(set(NAME.findall(text)))


def names_from(names: Sequence[str], start: str) -> list[str]:
    """Return the longer names that begin with `start`, of sorted ones."""
    first, last = bisect_left(names, start), bisect_left(names, start + chr(0x10FFFF))
    return [name for name in names[first:last] if name != start]


def countable(opened: OpenDocument) -> str | None:
    """Return the text that may be counted: handwritten code, secrets masked; None if there is none."""
    text = clean(opened.text)
    if is_secret(opened.path or PurePath(opened.name)) or len(text) > MAX_SOURCE_BYTES:
        return None
    masked, fault = decode_source(text.encode(), opened.name if opened.language == "json" else "")
    return masked if fault is None else None


def clean(text: str) -> str:
    """Replace lone surrogates, which no tokenizer accepts."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def place_of(opened: OpenDocument) -> str:
    """Return the name by which tables know a document's file."""
    return real_path(opened.path) if opened.path else opened.name


def real_path(file: Path) -> str:
    """Return a file's path without links, by which tables know it."""
    try:
        return str(file.resolve())
    except (OSError, RuntimeError):  # a cycle of links
        return str(file)


class ImportedModules:
    """The modules that open documents import."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self._asked: tuple[object, ...] = ()
        self._paths: list[str] = []

    def paths(self, document: OpenDocument) -> list[str]:
        """Return the files of tables that a document imports, if its own file belongs to these tables."""
        place = place_of(document)
        owners = self._owners(place)
        lines = tuple(match[1] for match in islice(_IMPORT.finditer(document.text), _MAX_IMPORT_LINES))
        asked = place, lines, *((one, len(one.states)) for one in owners)
        if asked != self._asked:  # looking takes milliseconds
            self._asked = asked
            paths = (
                path
                for one in owners
                for path in _imported_files(lines, document.language, place, one.states)
                if one.states[path][0] <= _MAX_BYTES
            )
            self._paths = list(islice(dict.fromkeys(paths), _MAX_MODULES))
        return self._paths

    def texts(self, document: OpenDocument) -> Iterator[str]:
        """Yield the texts of the modules that a document imports."""
        return map(self._text, self.paths(document))

    def exports(self, document: OpenDocument, imports: ImportList) -> list[str]:
        """Return the names that may go on with a list of imported ones; none where they are not known."""
        place = place_of(document)
        files = [one.states for one in self._owners(place)]
        found = (path for one in files for path in _imported_files([imports.line], document.language, place, one))
        if (path := next(found, None)) is None:
            return []
        names = exported_names(self._text(path), is_package=PurePath(path).stem == "__init__")
        return [name for name in names if name not in imports.listed and name.startswith(imports.begun)]

    def _owners(self, place: str) -> list[TableFiles]:
        """The tables of folders that a file lies in."""
        tables = self._files.tables.values()
        return [one for one in tables if any(place.startswith(f"{root}{os.sep}") for root in one.table.roots)]

    def _text(self, path: str) -> str:
        """The text of a module: in the editor, if it is open there, or on disk."""
        return self._files.text_at(path) or _text_on_disk(path, file_stamp(Path(path)))


@lru_cache(_MAX_TEXTS)
def _text_on_disk(path: str, stamp: object) -> str:
    return read_source_text(path)[0]


@dataclass(frozen=True, slots=True)
class ImportList:
    """A list of names that are imported from a module, up to a cursor. Example: `from .shop import Cart, Or`."""

    line: str  # what stands behind the word that begins an import of that module
    module: str
    listed: frozenset[str]  # names before the cursor
    begun: str  # a name at the cursor

    @classmethod
    def at(cls, text: str, cursor: int) -> ImportList | None:
        """Return the list at a cursor; None elsewhere."""
        reach = text[max(0, cursor - _LIST_REACH) : cursor]
        head, _, listed = reach.rpartition("import")
        words = head.rpartition("\n")[2].split()
        line = f" {words[-1] if words else ''} import x"
        is_list = len(words) == 2 and words[0] == "from"
        if not (is_list and re.fullmatch(r"[ \t][\w, \t]*|[ \t]*\([\w\s,]*", listed)):
            head, _, listed = reach.rpartition("\n")[2].rpartition("{")
            closed, _, source = text[cursor : cursor + _LIST_REACH].partition("\n")[0].partition("}")
            words = source.split(maxsplit=1)
            is_list = head.split()[:1] in (["import"], ["export"]) and len(words) == 2 and words[0] == "from"
            if not (is_list and re.fullmatch(r"[\w, \t]*", listed + closed)):
                return None
            line = f" {words[1]}"
        *before, begun = listed.replace("(", " ").split(",")
        return cls(line, words[1], frozenset(" ".join(before).split()), begun.strip())

    def foreign_names(self, document: OpenDocument) -> frozenset[str]:
        """Return names that hardly follow: those in the list, of Python's modules, and of modules imported here.

        Of 21,486 names imported from modules in ten packages, 60 were those of Python's own modules.
        """
        if document.language != "python" or self.module.startswith("."):  # its own may be called like these
            return self.listed
        own = self.module.rpartition(".")[2]  # as in `from datetime import datetime`
        return self.listed | {*_MODULE_IMPORT.findall(document.text), *sys.stdlib_module_names} - {own}


def exported_names(text: str, *, is_package: bool = False) -> list[str]:
    """The names that a module defines at its top or exports, in order; of a package also those that it takes.

    None where it exports more than it names, such as all of another module.
    """
    if _NOT_ALL.search(text):
        return []
    if listed := _ALL.search(text):
        return re.findall(r"[\"']([^\W\d]\w*)[\"']", listed[1])
    found = [name for groups in _DEFINED.findall(text) for name in NAME.findall(" ".join(groups))]
    if is_package:
        found += [name for taken in _TAKEN.findall(text) for name in NAME.findall(" ".join(taken))]
    return [name for name in dict.fromkeys(found) if name[0] != "_" and name not in ("as", "type")]


def _imported_files(
    lines: Iterable[str], language: str | None, place: str, files: Container[str]
) -> Iterator[str]:
    """Yield those of some files that a file at a place imports, each once. lines: what stands behind `import`.

    Of several that an import may mean, the nearest one of those with the longest path.
    """
    group = related_languages(language or "")
    ends = [end for end, language in LANGUAGE_BY_EXTENSION.items() if language in group]
    endings = [f"{inner}.{end}" for end in ends for inner in _INNER_FILES]
    folders = list(Path(place).parents)
    stems = (stem for line in lines for stem in _stems(line))
    seen = {place}
    for up, stem in dict.fromkeys(islice(stems, _MAX_STEMS)):
        tops = folders[:_MAX_DEPTH] if up is None else folders[up : up + 1]
        parts = stem.split("/")[:_MAX_DEPTH] if stem else []
        names = (str(top.joinpath(*parts[:n])) for n in range(len(parts), 0, -1) for top in tops)
        path = next((name + end for name in names for end in endings if name + end in files), None)
        if path and path not in seen:
            seen.add(path)
            yield path


def _stems(line: str) -> Iterator[tuple[int | None, str]]:
    """The paths without extensions that an import may mean, and from how many folders further up; None: any.

    Example: ` ..table import reader` -> (1, "table") and (1, "table/reader").
    """
    module, _, members = line.partition(" import ")
    found = _MODULE.findall(module)
    found += [f"{one.removesuffix('.')}.{name}" for one in found for name in _MODULE.findall(members)]
    for written in dict.fromkeys(found):
        stem = written.lstrip(".")
        if "/" in written:
            parts = posixpath.splitext(written)[0].split("/")
            up = parts.count("..")
            stem = "/".join(part for part in parts if part.strip("."))
        else:
            up = len(written) - len(stem) - 1
            stem = stem.removeprefix("crate::").replace("::", ".").replace(".", "/")
        yield (up if written.startswith(".") else None), stem

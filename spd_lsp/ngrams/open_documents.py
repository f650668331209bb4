"""Open documents, what of them may be counted, and the names in them and in what they import.

In: open documents, a cursor, and the tables whose files they import. Out: the names that a word may become.
Imported modules are read as tables hold them: what a table leaves out, such as ignored and generated files or
lines with secrets, brings no names. Knows neither LSP nor n-grams.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from bisect import bisect_left, insort
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath

from ngram_builders.sources.filters import MAX_SOURCE_BYTES, decode_source, normalize_line_ends
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, related_languages
from ngram_builders.sources.masking import find_secrets
from ngram_builders.sources.secret_files import is_secret
from spd_lsp.ngrams.file_sync import NAME, TableSync, real_path

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
_INDEXED_MODULES = 128  # whose names are kept
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
_TAKEN = re.compile(r"^from[ \t][^\n]*?\bimport\b([\w, \t]+)", re.MULTILINE)  # by a package from its modules
_ALL = re.compile(r"^__all__[^\n=]*=\s*[\[(]([^\])]*)", re.MULTILINE)
_LIST_REACH = 500  # characters of a list of imported names
_MODULE = re.compile(r"(?<![\w./:-])[\w./:-]*\w|\.+")  # tried once a run of these, so in linear time
_INNER_FILES = (
    "",
    f"{os.sep}__init__",
    f"{os.sep}index",
    f"{os.sep}mod",
)  # of a module, or of a folder that is one
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

    @property
    def plain(self) -> OpenDocument:
        """The document with "\\n" for every line end, as tokenizers see it."""
        return replace(self, text=normalize_line_ends(self.text)) if "\r" in self.text else self

    def matching_names(
        self,
        cursor: int,
        others: Callable[[str], Iterable[str]] = lambda start: (),
        imported: Iterable[OpenDocument] = (),
    ) -> Mapping[str, float]:
        """Return the names that the word at the cursor begins, likeliest first, and the probability of each.

        A name is the likelier the more often it stands behind the same sign or word, and the more recently above
        the cursor; those of imports and other documents matter where there is none. Secrets are no names.
        `others` returns the names that begin so in other open documents.
        """
        begun = _BEGUN_NAME.search(self.text, max(0, cursor - _MAX_NAME_LENGTH), cursor)
        if begun is None or re.match(r"\w", self.text[cursor : cursor + 1]):
            return {}
        found = re.compile(rf"(?<!\w){begun[0]}\w+")
        above = found.findall(self.text, max(0, cursor - _NAME_REACH), begun.start())
        below = found.findall(self.text, cursor, cursor + _NAME_REACH)
        alike = self._names_behind_the_same(begun)
        recent = dict.fromkeys([*reversed(above), *below])
        weights = {name: (1 + 5 * alike[name]) ** 0.45 / (1 + age) ** 0.1 for age, name in enumerate(recent)}
        modules = {name for one in imported for name in _names_from(_sorted_names(one.text), begun[0])}
        for beginning, weight in ((modules, _IMPORTED_WEIGHT), (others(begun[0]), _OTHER_WEIGHT)):
            names = set(islice(beginning, _MAX_ALIKE + 1)) - weights.keys()
            if len(names) <= _MAX_ALIKE:
                weights |= dict.fromkeys(sorted(names), weight / max(len(names), 1))
        around = self.text[max(0, cursor - _NAME_REACH - _KEY_REACH) : cursor + _NAME_REACH]
        return _as_probabilities(weights, around)

    def _names_behind_the_same(self, begun: re.Match[str]) -> Counter[str]:
        """How often each name that a word begins stands behind the same sign or word, or first on a line."""
        left = self.text[max(0, begun.start() - _MAX_NAME_LENGTH) : begun.start()].rpartition("\n")[2]
        reverse = _LEXEME_BACKWARDS.match(left[::-1])
        before = reverse[1][::-1] if reverse else ""
        start = rf"(?<!\w){before}" if before.isalnum() else re.escape(before) or "^"
        around = self.text[max(0, begun.start() - _NAME_REACH) : begun.end() + _NAME_REACH]
        return Counter(re.findall(rf"{start}[ \t]*(?<!\w)({begun[0]}\w+)", around, re.MULTILINE))


def _as_probabilities(weights: Mapping[str, float], text: str) -> Mapping[str, float]:
    """Return the likeliest names first; what is missing to 1 is left to names that stand nowhere yet."""
    secrets = [text[secret.start : secret.end] for secret in find_secrets(text)] if weights else []
    names = [name for name in weights if len(name) <= _MAX_NAME_LENGTH and not any(name in one for one in secrets)]
    total = sum(weights.values()) + _NEW_WEIGHT
    return {name: weights[name] / total for name in sorted(names, key=lambda name: -weights[name])}


def likely_words(names: Mapping[str, float], said: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return how likely names and other words are where drafts say words so probably, the likeliest first.

    A name that half of the drafts say is twelve times as likely as one that none says. Words that are hardly
    meant are left out.
    """
    mass: dict[str, float] = {}
    for word, probability in said:
        mass[word] = mass.get(word, 0.0) + probability
    new = max(0.0, 1 - sum(names.values()))
    prior = {**dict.fromkeys(mass, new / 2), **names}
    weights = {word: p * (1 + 300 * mass.get(word, 0.0)) ** 0.5 for word, p in prior.items()}
    total = sum(weights.values()) + new
    likely = ((word, weight / total) for word, weight in weights.items() if weight >= _MIN_PROBABILITY * total)
    return dict(sorted(likely, key=lambda item: -item[1]))


@lru_cache(_INDEXED_MODULES)
def _sorted_names(text: str) -> list[str]:
    """Return the names of a module, without secrets, in order."""
    names = set(NAME.findall(text))
    return sorted(names.difference(*(NAME.findall(text[one.start : one.end]) for one in find_secrets(text))))


def _names_from(names: list[str], start: str) -> list[str]:
    """Return the longer names that begin with `start`, of sorted ones."""
    first, last = bisect_left(names, start), bisect_left(names, start + chr(0x10FFFF))
    return [name for name in names[first:last] if name != start]


class OpenNames:
    """The names of open documents, by language."""

    def __init__(self) -> None:
        self._unread: dict[str, tuple[str | None, str]] = {}  # languages and texts that are new
        self._held: dict[str, tuple[str | None, frozenset[str]]] = {}  # languages and names
        self._holders: defaultdict[str | None, Counter[str]] = defaultdict(Counter)  # documents with a name
        self._sorted: defaultdict[str | None, list[str]] = defaultdict(list)

    def put(self, document: str, language: str | None, text: str) -> None:
        """Note a document's text; it is read with the next search for another one's sake, or before."""
        self._unread[document] = language, text

    def drop(self, document: str) -> None:
        """Forget a document."""
        self._unread.pop(document, None)
        self._replace(document, None, frozenset())

    def read(self, but: str = "") -> None:
        """Read all texts that are new, except one document's."""
        for document in self._unread.keys() - {but}:
            language, text = self._unread.pop(document)
            self._replace(document, language, frozenset(map(sys.intern, NAME.findall(text))))

    def find(self, start: str, language: str | None, without: str) -> Iterator[str]:
        """Yield the names that begin so in the documents of a language, one document left out."""
        self.read(but=without)
        known, own = self._held.get(without, (None, frozenset()))
        for name in _names_from(self._sorted[language], start):
            if self._holders[language][name] > (known == language and name in own):
                yield name

    def has(self, name: str) -> bool:
        """Whether an open document has a name."""
        self.read()
        return any(holders[name] for holders in self._holders.values())

    def _replace(self, document: str, language: str | None, names: frozenset[str]) -> None:
        """Let a document hold these names instead of those before."""
        before, held = self._held.pop(document, (language, frozenset()))
        if before != language:
            self._count(before, frozenset(), held)
            held = frozenset()
        self._count(language, names - held, held - names)
        if names:
            self._held[document] = language, names

    def _count(self, language: str | None, new: frozenset[str], gone: frozenset[str]) -> None:
        holders = self._holders[language]
        names = self._sorted[language]
        for name in new:
            if not holders[name]:
                insort(names, name)
            holders[name] += 1
        for name in gone:
            holders[name] -= 1
            if not holders[name]:
                del holders[name], names[bisect_left(names, name)]


class ImportedModules:
    """The modules of the file asked for last, and the texts of the latest ones."""

    def __init__(self, bytes_of: Callable[[Sequence[int]], bytes]) -> None:
        """`bytes_of`: from the ids that tables are counted from."""
        self._bytes_of = bytes_of
        self._texts: OrderedDict[Hashable, str] = OrderedDict()  # by the digest of a module
        self._asked: tuple[object, ...] = ()
        self._paths: list[tuple[TableSync, str]] = []

    def find(self, document: OpenDocument, place: str, tables: Iterable[TableSync]) -> Iterator[OpenDocument]:
        """Yield the modules that a document at a place imports, as the tables of its file hold them."""
        for table, path in self.paths(document, place, tables):
            if path in table.ledger.hidden or path in table.unread:
                continue
            yield OpenDocument(path, None, document.language, self._text(table, path))

    def exports(self, document: OpenDocument, cursor: int, place: str, tables: Iterable[TableSync]) -> list[str]:
        """Return the names that may go on with a list of imported ones; none where no table has their module."""
        if (found := _import_list(document.text, cursor)) is None:
            return []
        line, listed = found
        of_module = replace(document, text=line)
        for owner in tables:
            path = next(imported_files(of_module, place, owner.table.roots, owner.states), None)
            if path and path not in owner.ledger.hidden and path not in owner.unread:
                *before, begun = listed.split(",")
                known = {name.strip() for name in before}
                names = exported_names(self._text(owner, path), is_package=PurePath(path).stem == "__init__")
                return [name for name in names if name not in known and name.startswith(begun.strip())]
        return []

    def paths(
        self, document: OpenDocument, place: str, tables: Iterable[TableSync]
    ) -> list[tuple[TableSync, str]]:
        """Return the files that a document at a place imports, each with its table."""
        owners = [one for one in tables if _is_below(place, one.table.roots)]
        asked = _imports_of(document.text), place, *((owner, len(owner.states)) for owner in owners)
        if asked != self._asked:
            self._asked = asked
            paths = (
                (one, path)
                for one in owners
                for path in imported_files(document, place, one.table.roots, one.states)
                if one.states[path][0] <= _MAX_BYTES
            )
            self._paths = list(islice(paths, _MAX_MODULES))
        return self._paths

    def _text(self, table: TableSync, path: str) -> str:
        """Return the text of a file that the table counts."""
        digest = table.ledger.keys.get(path)
        if digest not in self._texts:
            streams = table.ledger.streams_of(path) or ()
            self._texts[digest] = b"".join(self._bytes_of(ids.tolist()) for ids in streams).decode(
                errors="replace"
            )
            if len(self._texts) > _MAX_TEXTS:
                self._texts.popitem(last=False)
        self._texts.move_to_end(digest)
        return self._texts[digest]


def _is_below(place: str, roots: Iterable[Path]) -> bool:
    """Whether a file lies in one of these folders."""
    return any(place.startswith(f"{root}{os.sep}") for root in roots)


def _import_list(text: str, cursor: int) -> tuple[str, str] | None:
    """An import of the module whose names are listed at a cursor, and the list up to there; None elsewhere.

    Example: `from .shop import Cart, ` -> ("from .shop import x", " Cart, ").
    """
    head, found, listed = text[max(0, cursor - _LIST_REACH) : cursor].rpartition("import")
    words = head.rpartition("\n")[2].split()
    if (
        found
        and len(words) == 2
        and words[0] == "from"
        and re.fullmatch(r"[ \t][\w, \t]*|[ \t]*\([\w\s,]*", listed)
    ):
        return f"from {words[1]} import x", listed.replace("(", " ")
    left = text[max(0, cursor - _LIST_REACH) : cursor].rpartition("\n")[2]
    head, found, listed = left.rpartition("{")
    rest = text[cursor : cursor + _LIST_REACH].partition("\n")[0]
    closed, _, module = rest.partition("}")
    is_list = (
        found and head.split()[:1] in (["import"], ["export"]) and re.fullmatch(r"[\w, \t]*", listed + closed)
    )
    if is_list and module.split()[:1] == ["from"]:
        return f"import {module.split(maxsplit=1)[1]}", listed
    return None


def exported_names(text: str, *, is_package: bool = False) -> list[str]:
    """The names that a module defines at its top or exports, in order; of a package also those that it takes."""
    if listed := _ALL.search(text):
        return re.findall(r"[\"']([^\W\d]\w*)[\"']", listed[1])
    found = [name for groups in _DEFINED.findall(text) for name in NAME.findall(" ".join(groups))]
    found += [name for taken in _TAKEN.findall(text) for name in NAME.findall(taken)] if is_package else []
    return [name for name in dict.fromkeys(found) if name[0] != "_" and name not in ("as", "type")]


def _imports_of(text: str) -> tuple[str, ...]:
    """What stands behind `import` and the like, a line each."""
    return tuple(match[1] for match in islice(_IMPORT.finditer(text), _MAX_IMPORT_LINES))


def imported_files(
    document: OpenDocument, place: str, roots: Iterable[Path], files: Container[str]
) -> Iterator[str]:
    """Yield those of some files that a document at a place imports, if it lies in one of these folders."""
    if _is_below(place, roots):
        lines = _imports_of(document.text)
        stems = list(dict.fromkeys(islice((stem for line in lines for stem in _stems(line)), _MAX_STEMS)))
        yield from _resolve(files, document, place, stems)


def _stems(line: str) -> Iterator[tuple[int | None, str]]:
    """The paths without extensions that an import may mean, and from how many folders further up; None: any.

    Example: ` ..table import reader` -> (1, "table") and (1, "table/reader").
    """
    module, _, members = line.partition(" import ")
    found = _MODULE.findall(module)
    found += [
        f"{one}{'' if one.endswith('.') else '.'}{name}" for one in found for name in _MODULE.findall(members)
    ]
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


def _resolve(
    files: Container[str], document: OpenDocument, place: str, stems: Iterable[tuple[int | None, str]]
) -> Iterator[str]:
    """Those of some files that these stems mean, each once: the nearest of those with the longest path."""
    language_group = related_languages(document.language or "")
    endings = [
        f"{inner}.{end}"
        for end, of in LANGUAGE_BY_EXTENSION.items()
        if of in language_group
        for inner in _INNER_FILES
    ]
    folders = list(Path(place).parents)
    seen = {place}
    for up, stem in stems:
        tops = folders[:_MAX_DEPTH] if up is None else folders[up : up + 1]
        parts = stem.split("/")[:_MAX_DEPTH] if stem else []
        names = (str(top.joinpath(*parts[:n])) for n in range(len(parts), 0, -1) for top in tops)
        path = next((name + end for name in names for end in endings if name + end in files), None)
        if path and path not in seen:
            seen.add(path)
            yield path


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """The new state of a document, None once it is closed, and whether it was saved."""

    document: OpenDocument | None
    saved: bool


def countable(opened: OpenDocument, text: str) -> str | None:
    """Return the text that may be counted: handwritten code, secrets masked; None if there is none."""
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

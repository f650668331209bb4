"""Open documents, and the names in them and in what they import.

In: open documents, a cursor, and the domains whose files they import. Out: the names that a word may become.
Imported modules are read as tables hold them: what a table leaves out, such as ignored and generated files or
lines with secrets, brings no names. Knows neither LSP nor n-grams.
"""

from __future__ import annotations

import os
import posixpath
import re
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, related_languages
from ngram_builders.sources.masking import find_secrets
from spd_lsp.ngrams.file_sync import DomainSync

_NAME = re.compile(r"[^\W\d]\w{2,}")
_BEGUN_NAME = re.compile(r"(?<!\w)[^\W\d]\w+\Z")  # of two letters at least
_LEXEME_BACKWARDS = re.compile(r"[ \t]*(\w+|[^\w\s])")  # the last one of a reversed text, in linear time
_MIN_PROBABILITY = 0.01  # a word below this is not worth a draft's place
_MAX_NAME_LENGTH = 80
_NAME_REACH = 200_000  # characters on each side of the cursor that are searched for names
_OTHER_WEIGHT = 0.1  # of all names in other open documents, against one occurrence in this one
_IMPORTED_WEIGHT = 0.5  # of all names in the modules that it imports
_NEW_WEIGHT = 0.15  # of a name that stands nowhere yet
_INDEXED_DOCUMENTS = 128
_IMPORT = re.compile(
    r"^[ \t]*(?:from|import|export|include|#[ \t]*include|require(?:_relative|_once)?|use|pub|mod|source"
    r"|(?:const|let|var|local)\b[^\n]{0,200}\brequire|\}[ \t]*from)\b([^\n]{1,400})",
    re.MULTILINE,
)
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
        self, cursor: int, others: Iterable[OpenDocument] = (), imported: Iterable[OpenDocument] = ()
    ) -> Mapping[str, float]:
        """Return the names that the word at the cursor begins, likeliest first, and the probability of each.

        A name is the likelier the more often it stands behind the same sign or word, and the more recently above
        the cursor; those of imports and other documents matter where there is none. Secrets are no names.
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
        for documents, weight in ((imported, _IMPORTED_WEIGHT), (others, _OTHER_WEIGHT)):
            names = {name for one in documents for name in _names_from(_sorted_names(one.text), begun[0])}
            names -= weights.keys()
            weights |= dict.fromkeys(sorted(names), weight / max(len(names), 1))
        return _as_probabilities(weights, self.text)

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


@lru_cache(_INDEXED_DOCUMENTS)
def _sorted_names(text: str) -> list[str]:
    """Return the names of a text, without secrets, in order."""
    names = set(_NAME.findall(text))
    return sorted(names.difference(*(_NAME.findall(text[one.start : one.end]) for one in find_secrets(text))))


def _names_from(names: list[str], start: str) -> list[str]:
    """Return the longer names that begin with `start`, of sorted ones."""
    first, last = bisect_left(names, start), bisect_left(names, start + chr(0x10FFFF))
    return [name for name in names[first:last] if name != start]


class ImportedModules:
    """The modules of the file asked for last, and the texts of the latest ones."""

    def __init__(self, bytes_of: Callable[[Sequence[int]], bytes]) -> None:
        """`bytes_of`: from the ids that tables are counted from."""
        self._bytes_of = bytes_of
        self._texts: OrderedDict[Hashable, str] = OrderedDict()  # by the digest of a module
        self._asked: tuple[object, ...] = ()
        self._paths: list[tuple[DomainSync, str]] = []

    def find(self, document: OpenDocument, place: str, domains: Iterable[DomainSync]) -> Iterator[OpenDocument]:
        """Yield the modules that a document at a place imports from the domains that its file belongs to."""
        lines = tuple(match[1] for match in islice(_IMPORT.finditer(document.text), _MAX_IMPORT_LINES))
        owners = [one for one in domains if any(place.startswith(f"{root}{os.sep}") for root in one.domain.roots)]
        asked = lines, place, *((owner, len(owner.states)) for owner in owners)
        if asked != self._asked:
            self._asked = asked
            stems = list(dict.fromkeys(islice((stem for line in lines for stem in _stems(line)), _MAX_STEMS)))
            paths = ((owner, path) for owner in owners for path in _resolve(owner, document, place, stems))
            self._paths = list(islice(paths, _MAX_MODULES))
        for domain, path in self._paths:
            yield OpenDocument(path, None, document.language, self._text(domain, path))

    def _text(self, domain: DomainSync, path: str) -> str:
        """Return the text of a file that the domain counts."""
        digest = domain.ledger.keys.get(path)
        if digest not in self._texts:
            streams = domain.ledger.streams_of(path) or ()
            self._texts[digest] = b"".join(self._bytes_of(ids.tolist()) for ids in streams).decode(
                errors="replace"
            )
            if len(self._texts) > _MAX_TEXTS:
                self._texts.popitem(last=False)
        self._texts.move_to_end(digest)
        return self._texts[digest]


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
            up, stem = parts.count(".."), "/".join(part for part in parts if part.strip("."))
        else:
            up, stem = (
                len(written) - len(stem) - 1,
                stem.removeprefix("crate::").replace("::", ".").replace(".", "/"),
            )
        yield (up if written.startswith(".") else None), stem


def _resolve(
    domain: DomainSync, document: OpenDocument, place: str, stems: Iterable[tuple[int | None, str]]
) -> Iterator[str]:
    """The files of a domain that these stems mean, each once: the nearest of those with the longest path."""
    kin = related_languages(document.language or "")
    endings = [
        f"{inner}.{end}" for end, of in LANGUAGE_BY_EXTENSION.items() if of in kin for inner in _INNER_FILES
    ]
    folders = list(Path(place).parents)
    seen = {place}
    for up, stem in stems:
        tops = folders[:_MAX_DEPTH] if up is None else folders[up : up + 1]
        parts = stem.split("/")[:_MAX_DEPTH] if stem else []
        names = (str(top.joinpath(*parts[:n])) for n in range(len(parts), 0, -1) for top in tops)
        path = next((name + end for name in names for end in endings if name + end in domain.states), None)
        if path and path not in seen and domain.states[path][0] <= _MAX_BYTES:
            seen.add(path)
            yield path


@dataclass(frozen=True, slots=True)
class RelatedFiles:
    """Files that help to complete another one of their repository: what changes seldom comes first."""

    repository: str  # the name of its folder
    path: str  # of the file that is completed, in the repository
    files: tuple[tuple[str, str], ...]  # paths and texts

    @classmethod
    def of(cls, place: str, roots: Iterable[Path], files: Iterable[tuple[str, str]]) -> RelatedFiles:
        """`roots`: folders of repositories, one of which may hold the file at this place."""
        found = next((root for root in roots if place.startswith(f"{root}{os.sep}")), Path(place).parent)
        inside = [(one, text) for one, text in dict(files).items() if one != place and text.strip()]
        return cls(found.name, _path_in(found, place), tuple((_path_in(found, one), text) for one, text in inside))


class FilesAsRead:
    """Other files in the order and with the texts that a model has read, so that it need not read them again.

    While someone types, what changed in them stays as it was; a file that is new comes last.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by path

    def of(self, files: Iterable[tuple[str, str]], *, current: bool) -> list[tuple[str, str]]:
        """These files as they were read; those that changed as they are now, and last, if `current`."""
        now = dict(files)
        if current:
            outdated = [path for path, text in now.items() if self._texts.get(path, text) != text]
            self._texts = {path: text for path, text in self._texts.items() if path not in outdated}
        self._texts |= {path: text for path, text in now.items() if path not in self._texts}
        found = [(path, text) for path, text in self._texts.items() if path in now]
        self._texts = dict(list(self._texts.items())[-_MAX_TEXTS:])
        return found


def _path_in(root: Path, place: str) -> str:
    """A file's path in a repository, as people write it; of others, its name."""
    path = Path(place)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """The new state of a document, None once it is closed, and whether it was saved."""

    document: OpenDocument | None
    saved: bool

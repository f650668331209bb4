"""Where a text stands in what tables were counted from: the longest passages of it, with files and lines.

In: a text and its ids, tables. Out: passages with their places, or for a table that keeps no texts how many of the
ids its n-grams hold. Ids find the documents, bytes the places in them: a text may begin or end inside a token, and
what stands around it decides how its ends are cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, takewhile
from pathlib import Path

import numpy as np

from ngram_builders.counting.token_cache import IndexedFiles, read_indexed_files
from ngram_builders.ngrams import HIGHEST_ORDER
from ngram_builders.registry.domains import Domain
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import DEPTH

LEAST_TOKENS = 3  # of a passage, and of an n-gram: everybody writes shorter ones
_MAX_DOCUMENTS = 256  # that are read for one passage
_MAX_PLACES = 1000  # that are kept of one passage
_MAX_MATCHES = 1 << 18  # of its ids
_AROUND = ("", " ", "\n", "x", "1", ".", "(", ")", "_")  # what may stand before a text, or behind it
_RUN = re.compile(rb"[\w\x80-\xff]+|[^\w\s\x80-\xff]+")  # of letters, or of signs

Encode = Callable[[str], list[int]]
Decode = Callable[[Sequence[int]], bytes]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file, as editors show it."""

    file: str
    line: int
    column: int
    source: str  # the line itself, as it was counted
    changed: bool  # whether the file is another one by now


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text that stands elsewhere word for word."""

    start: int  # in bytes
    end: int
    spots: tuple[Spot, ...]


@dataclass(frozen=True, slots=True)
class Attribution:
    """What one table knows of a text."""

    passages: tuple[Passage, ...] | None  # None: it keeps no texts, or its files are not known here
    held: int  # of the text's tokens: those that end an n-gram of LEAST_TOKENS or more in the table
    longest: int  # of these n-grams


@dataclass(frozen=True, slots=True)
class Query:
    """A text as bytes and ids."""

    text: bytes
    ids: Sequence[int]
    ends: Sequence[int]  # where each id ends in the text, after a 0

    @classmethod
    def of(cls, ids: Sequence[int], decode: Decode) -> Query:
        """The query of some ids."""
        pieces = [decode([one]) for one in ids]
        return cls(b"".join(pieces), ids, [0, *accumulate(map(len, pieces))])


def attribute(
    query: Query, layers: Sequence[Table], domain: Domain | None, encode: Encode, decode: Decode
) -> Attribution:
    """Find what a table knows of a text, from its base and segments."""
    orders = _highest_orders(query.ids, layers)
    held = [order for order in orders if order >= LEAST_TOKENS]
    passages = None
    if layers[0].texts is not None and domain is not None:
        contents = read_indexed_files(domain.path.parent, domain.layers, domain.fingerprint)
        if contents is not None:
            documents = _Documents(layers, contents, encode, decode)
            passages = tuple(_find_passages(query, documents))[::-1]
    return Attribution(passages, len(held), max(held, default=0))


def _highest_orders(ids: Sequence[int], layers: Sequence[Table]) -> list[int]:
    """For each id, the length of the longest n-gram of the table that it ends, 0 for none."""
    query, reach = open_query([[layer.columns for layer in layers]], [1.0]), HIGHEST_ORDER - 1
    padded = np.array([*[-1] * reach, *ids])
    orders = []
    for at in range(len(ids)):
        p, _ = query.probabilities(padded[None, at : at + reach], padded[at + reach : at + reach + 1])
        orders.append(max((order for order, found in enumerate(p[0, :, 0], 2) if found > 0), default=0))
    return orders


class _Documents:
    """The documents of a table, by their digests."""

    def __init__(self, layers: Sequence[Table], contents: IndexedFiles, encode: Encode, decode: Decode) -> None:
        self.layers = [(layer.texts, digests) for layer, digests in zip(layers, contents.documents, strict=True)]
        self.contents = contents
        self.encode, self.decode = encode, decode
        paths: dict[bytes, list[str]] = {}
        for path, (_, _, digest) in contents.files.items():
            paths.setdefault(digest, []).append(path)
        self.paths = paths
        self.read: dict[bytes, bytes] = {}

    def with_end(self, ids: Sequence[int]) -> tuple[int, list[bytes]]:
        """Most of the last ids that stand in any document, and the documents with them."""
        found: dict[bytes, int] = {}
        for texts, digests in self.layers:
            removed = {number for number, digest in enumerate(digests) if digest is None}
            longest = 0
            for place in texts.find(ids, _MAX_DOCUMENTS, 0, removed) if texts else ():
                longest = longest or place.length
                if place.length < longest:
                    break
                if place.document < len(digests) and (digest := digests[place.document]):
                    found[digest] = place.length
        most = max(found.values(), default=0)
        return most, sorted(digest for digest, length in found.items() if length == most)

    def places(self, text: bytes, known: Iterable[bytes] = ()) -> Iterator[tuple[bytes, int]]:
        """Every place of a text: the document, some of which are `known`, and where in it."""
        ids = _ids_anywhere(text, self.encode, self.decode)
        for digest in sorted({*known, *(self._with(ids) if ids else self.paths)}):
            document = self.text(digest)
            at = document.find(text)
            while at >= 0:
                yield digest, at
                at = document.find(text, at + len(text))

    def _with(self, ids: Sequence[int]) -> Iterator[bytes]:
        """The documents in which these ids stand, as often as they do."""
        for texts, digests in self.layers:
            removed = {number for number, digest in enumerate(digests) if digest is None}
            shorter = min(len(ids), DEPTH) - 1
            for place in texts.find(ids, _MAX_MATCHES, 0, removed, shorter) if texts else ():
                if place.document < len(digests) and (digest := digests[place.document]):
                    yield digest

    def text(self, digest: bytes) -> bytes:
        """A document's bytes, empty if they are no longer known."""
        if digest not in self.read:
            ids = self.contents.ids(digest)
            self.read[digest] = b"" if ids is None else self.decode(ids.tolist())
        return self.read[digest]

    def spots(self, digest: bytes, at: int) -> Iterator[Spot]:
        """A place in a document, in every file with that text."""
        text = self.text(digest)
        start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        source = text[start : end if end >= 0 else len(text)].decode("utf-8", "replace")
        column = len(text[start:at].decode("utf-8", "replace")) + 1
        for path in self.paths[digest]:
            yield Spot(path, text.count(b"\n", 0, at) + 1, column, source, self._has_changed(path))

    def _has_changed(self, path: str) -> bool:
        """Whether a file is not the one that was counted."""
        try:
            status = Path(path).stat()
        except OSError:
            return True
        return (status.st_size, status.st_mtime_ns) != self.contents.files[path][:2]


def _find_passages(query: Query, documents: _Documents) -> Iterator[Passage]:
    """Cover a text from its end with the longest passages that stand in documents; what is in none is left out."""
    last, limit = len(query.ids), len(query.text)
    whole = query.text.strip()
    if places := list(documents.places(whole)):
        start = query.text.index(whole)
        yield Passage(start, start + len(whole), _spots(places, documents))
        return
    while last > 0:
        length, digests = documents.with_end(query.ids[max(0, last - DEPTH) : last])
        part = query.ends[last - length], min(query.ends[last], limit)
        grown = _grow(query, part, limit, digests, documents) if part[0] < part[1] else None
        if not grown:
            last -= 1
            continue
        start, end = grown
        first = next(i for i in reversed(range(last)) if query.ends[i] <= start)
        if last - first >= LEAST_TOKENS:
            text = query.text[start:end].lstrip()
            yield Passage(end - len(text), end, _spots(documents.places(text, digests), documents))
        last, limit = first, start


def _spots(places: Iterable[tuple[bytes, int]], documents: _Documents) -> tuple[Spot, ...]:
    """The places in files, in order."""
    spots = (spot for digest, at in places for spot in documents.spots(digest, at))
    return tuple(sorted(islice(spots, _MAX_PLACES), key=_by_place))


def _ids_anywhere(text: bytes, encode: Encode, decode: Decode) -> list[int]:
    """The longest run of ids that a text has whatever stands around it; none in a part of a word."""
    letters = text.decode("utf-8", "ignore")
    ways = [_ids_inside(encode(before + letters), text, decode) for before in _AROUND]
    ways += [_ids_inside(encode(letters + behind), text, decode) for behind in _AROUND]
    always = set(ways[0]).intersection(*ways)
    runs = [list(group) for kept, group in groupby(ways[0], always.__contains__) if kept]
    return [token for _, token in max(runs, key=len, default=[])]


def _ids_inside(ids: Sequence[int], text: bytes, decode: Decode) -> list[tuple[int, int]]:
    """The ids that lie within a text that they spell, and where each begins in it.

    Without its first and last word or signs: elsewhere they may be part of longer ones.
    """
    pieces = [decode([one]) for one in ids]
    begin = -b"".join(pieces).find(text)
    begins = accumulate(map(len, pieces), initial=begin)
    placed = zip(begins, ids, pieces, strict=False)
    first, last = (len(run[0]) if (run := _RUN.match(part)) else 0 for part in (text, text[::-1]))
    return [(at, token) for at, token, piece in placed if at >= first and at + len(piece) <= len(text) - last]


def _by_place(spot: Spot) -> tuple[bool, str, int, int]:
    """Files that are still as they were come first."""
    return spot.changed, spot.file, spot.line, spot.column


def _grow(
    query: Query, part: tuple[int, int], limit: int, digests: Sequence[bytes], documents: _Documents
) -> tuple[int, int] | None:
    """The longest passage around a part of the text in some documents."""
    grown: list[tuple[int, int]] = []
    for digest in digests:
        document = documents.text(digest)
        at = document.find(query.text[slice(*part)])
        while at >= 0:
            left = _shared_end(query.text[: part[0]], document[max(0, at - part[0]) : at])
            after = at + part[1] - part[0]
            right = _shared_start(query.text[part[1] : limit], document[after : after + limit - part[1]])
            grown.append((part[0] - left, part[1] + right))
            at = document.find(query.text[slice(*part)], after)
    return max(grown, key=lambda span: (span[1] - span[0], -span[0]), default=None)


def _shared_start(first: bytes, second: bytes) -> int:
    """How many bytes two texts begin with alike."""
    shared = (a == b for a, b in zip(first, second, strict=False))
    return sum(takewhile(bool, shared))


def _shared_end(first: bytes, second: bytes) -> int:
    """How many bytes two texts end with alike."""
    return _shared_start(first[::-1], second[::-1])

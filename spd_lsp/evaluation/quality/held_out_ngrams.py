"""What n-grams know at an example, with everything removed that a person would not have there yet.

A package is counted once; the file under test and its near duplicates are subtracted as signed counts, which gives
exactly the table of the other files. Knows ids and texts, no models.

    counts = PackageNgrams(package, tokens, built_in)
    held_out = counts.without(file)           # once a file
    mixtures = held_out.mixtures(example)     # once an example: by prior, None for "none"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.ngrams import ORDERS, Run, count_streams, negate, with_boundaries
from ngram_builders.registry.ngram_table import DEFAULT_WEIGHT
from ngram_builders.sources.language_ids import closest_language
from ngram_builders.table.format import Columns
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SearchedTexts, build_suffix_array, join_backwards
from ngram_builders.table.writer import build_columns
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.examples import Example, PackageFile, PackageFiles
from spd_lsp.evaluation.quality.lexeme_index import LexemeIndex, Surroundings
from spd_lsp.evaluation.quality.similarity import NEAR_DUPLICATE, identifiers, jaccard
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
from spd_lsp.ngrams.mixture import Mixture
from spd_lsp.ngrams.serving_tables import BUILT_IN_WEIGHT

Prior = Literal["none", "built-in", "file", "repository", "repository+file"]
PRIORS: tuple[Prior, ...] = ("none", "built-in", "file", "repository", "repository+file")
LINE_SEEN = ("in another file", "in the same file", "new")


@dataclass(frozen=True, slots=True)
class AddedTable:
    """A table of other code, with its weight beside what is known of a package."""

    name: str
    weight: float
    columns: Sequence[Columns]
    texts: Sequence[SearchedTexts] = ()

    @property
    def label(self) -> str:
        """Example: `django=0.3`"""
        return f"{self.name}={self.weight:g}"


class PackageNgrams:
    """The counts of a whole package, the built-in tables, and others to be compared."""

    def __init__(
        self,
        package: PackageFiles,
        tokens: ModelTokenizer,
        built_in: dict[str, Path],
        added: Sequence[AddedTable] = (),
    ) -> None:
        self.added = added
        self.tokens = tokens
        self.incremental = IncrementalTokenizer(tokens)
        self.files = package.files
        encoded = tokens.encode_batch([file.text for file in package.files])
        self.streams = [with_boundaries(ids, tokens.end_of_text) for ids in encoded]
        self.columns = build_columns(self.count(self.streams), tokens.vocab_size)
        self.texts = build_suffix_array([ids[1:-1] for ids in self.streams], tokens.end_of_text, tokens.vocab_size)
        self.identifiers = [identifiers(file.text) for file in package.files]
        self.lines = [_stripped_lines(file.text) for file in package.files]
        self.files_with_line = Counter(line for lines in self.lines for line in lines)
        self.built_in = {language: Table.open(path, tokens.fingerprint) for language, path in built_in.items()}

    @cached_property
    def lexemes(self) -> LexemeIndex:
        """The lexemes of all files."""
        return LexemeIndex([file.text for file in self.files])

    def count(self, streams: Sequence[Ints]) -> Run:
        """Count the n-grams of some streams."""
        return count_streams(streams, orders=ORDERS, vocab_size=self.tokens.vocab_size)

    def without(self, file: PackageFile) -> HeldOutNgrams:
        """What the other files know of this one."""
        return HeldOutNgrams(self, file, self.near_duplicates(file))

    def near_duplicates(self, file: PackageFile) -> list[int]:
        """The indices of files with the same or nearly the same identifiers, the file itself among them."""
        own = identifiers(file.text)
        return [
            i
            for i, other in enumerate(self.files)
            if other.sha256 == file.sha256 or jaccard(own, self.identifiers[i]) >= NEAR_DUPLICATE
        ]


class HeldOutNgrams:
    """What is known of one file without the file itself."""

    def __init__(self, package: PackageNgrams, file: PackageFile, removed: Sequence[int]) -> None:
        """`removed`: the indices of the files that are not counted."""
        self.package = package
        self.file = file
        self.removed = removed
        self.texts = SearchedTexts(package.texts, frozenset(removed))
        counts = package.count([package.streams[i] for i in removed])
        self.repository = [package.columns, build_columns(negate(counts), package.tokens.vocab_size)]
        self.encoded = package.incremental.encode(file.text)
        self.removed_lines = Counter(line for i in removed for line in package.lines[i])

    def mixtures(self, example: Example) -> dict[str, Mixture | None]:
        """The n-grams of each prior at an example, and all that is known with each added table, by its label."""
        table = self.package.built_in.get(closest_language(self.file.language, self.package.built_in) or "")
        built_in = [("built-in", [table.columns], BUILT_IN_WEIGHT)] if table else []
        streams = self._streams_around(example)
        file = build_columns(self.package.count(streams), self.package.tokens.vocab_size)
        texts = replace(self.texts, added=join_backwards(streams))
        own = ("file", [file], DEFAULT_WEIGHT)
        known = [("repository", self.repository, DEFAULT_WEIGHT), own, *built_in]
        added = {
            one.label: self._mixture([*known, (one.name, one.columns, one.weight)], texts, *one.texts)
            for one in self.package.added
        }
        return {
            **added,
            "none": None,
            "built-in": self._mixture(built_in),
            "file": self._mixture([own, *built_in]),
            "repository": self._mixture([("repository", self.repository, DEFAULT_WEIGHT), *built_in], self.texts),
            "repository+file": self._mixture(known, texts),
        }

    def surroundings(self, example: Example) -> Surroundings:
        """The texts that copies are made from at an example."""
        text = self.file.text
        lexemes = self.package.lexemes
        own = LexemeIndex([text[: example.line_start], text[example.line_end :]], lexemes.vocabulary)
        return Surroundings(lexemes, self.removed, own)

    def _mixture(
        self, pools: Sequence[tuple[str, Sequence[Columns], float]], *texts: SearchedTexts
    ) -> Mixture | None:
        """Several pools of counts as one prior, or None without any."""
        if not pools:
            return None
        names, columns, weights = zip(*pools, strict=True)
        return Mixture(columns, weights, names, texts=texts)

    def _streams_around(self, example: Example) -> list[Ints]:
        """The file's ids without the example's line, in two pieces, as the server counts an open document."""
        text = self.file.text
        start, end = (len(text[:place].encode()) for place in (example.line_start, example.line_end))
        boundary = [self.package.tokens.end_of_text]
        if self.encoded.ends is None:
            pieces = [text[: example.line_start], text[example.line_end :]]
            before, after = (self.package.incremental.encode(piece).ids for piece in pieces)
        else:
            before, after = self.encoded.around(start, end)
        return [np.concatenate((boundary, before)), np.concatenate((after, boundary))]

    def line_seen(self, example: Example) -> str:
        """Where else the whole line stands: one of LINE_SEEN; near duplicates are not other files."""
        if self.package.files_with_line[example.line] > self.removed_lines[example.line]:
            return LINE_SEEN[0]
        text = self.file.text
        elsewhere = _stripped_lines(text[: example.line_start]) | _stripped_lines(text[example.line_end :])
        return LINE_SEEN[1] if example.line in elsewhere else LINE_SEEN[2]


def _stripped_lines(text: str) -> frozenset[str]:
    """The distinct lines of a text, without surrounding white space."""
    return frozenset(line.strip() for line in text.split("\n"))

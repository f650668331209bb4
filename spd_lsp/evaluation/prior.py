"""What n-grams know at a place, with all that a person would not have there yet taken out.

A package is counted once; the file under test, and files that are versions of it, are taken back as signed counts.
So the repository's prior is that of a table built from the other files, exactly. Knows ids and texts, no models.

    known = PackagePrior(package, tokens, built_in)
    beside = known.beside(source)               # once a file
    mixtures = beside.mixtures(cursor)          # once a place: by the names in PRIORS, None where nothing is asked
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.ngrams import ORDERS, Run, count_streams, negate, stream
from ngram_builders.registry.domains import DEFAULT_WEIGHT
from ngram_builders.table.format import Columns
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import build_columns
from spd_lsp.completion.tokenizer import Tokens
from spd_lsp.evaluation.places import Cursor, Package, Source
from spd_lsp.evaluation.similarity import NEAR, identifiers, jaccard
from spd_lsp.ngrams.incremental_tokenizer import Retokeniser
from spd_lsp.ngrams.interpolation import BUILT_IN_WEIGHT, Mixture

Prior = Literal["none", "built-in", "repository", "repository+file"]
PRIORS: tuple[Prior, ...] = ("none", "built-in", "repository", "repository+file")
SEEN = ("in another file", "in the same file", "new")


class PackagePrior:
    """The counts of a whole package, and the built-in tables."""

    def __init__(self, package: Package, tokens: Tokens, built_in: dict[str, Path]) -> None:
        self.tokens = tokens
        self.retokeniser = Retokeniser(tokens)
        self.sources = package.sources
        encoded = tokens.encode_batch([source.text for source in package.sources])
        self.streams = [stream(ids, tokens.end_of_text) for ids in encoded]
        self.columns = build_columns(self.count(self.streams), tokens.vocab_size)
        self.identifiers = [identifiers(source.text) for source in package.sources]
        self.lines = [_stripped_lines(source.text) for source in package.sources]
        self.holders = Counter(line for lines in self.lines for line in lines)  # files that hold each line
        self.built_in = {language: Table.open(path, tokens.fingerprint) for language, path in built_in.items()}

    def count(self, streams: Sequence[Ints]) -> Run:
        """The n-grams of some streams."""
        return count_streams(streams, orders=ORDERS, vocab_size=self.tokens.vocab_size)

    def beside(self, source: Source) -> FilePrior:
        """What the other files know of this one."""
        return FilePrior(self, source, self.versions(source))

    def versions(self, source: Source) -> list[int]:
        """Which files are the same as this one or nearly so: by identifiers, itself among them."""
        own = identifiers(source.text)
        return [
            i
            for i, other in enumerate(self.sources)
            if other.sha256 == source.sha256 or jaccard(own, self.identifiers[i]) >= NEAR
        ]


class FilePrior:
    """What is known beside one file."""

    def __init__(self, whole: PackagePrior, source: Source, versions: Sequence[int]) -> None:
        self.whole = whole
        self.source = source
        self.versions = versions  # itself among them
        taken = whole.count([whole.streams[i] for i in versions])
        self.repository = [whole.columns, build_columns(negate(taken), whole.tokens.vocab_size)]
        self.encoded = whole.retokeniser.encode(source.text)
        self.taken_lines = Counter(line for i in versions for line in whole.lines[i])

    def mixtures(self, cursor: Cursor, *, right: bool = True) -> dict[Prior, Mixture | None]:
        """The priors at a place in this file, by name; without what stands right of the cursor if so asked."""
        built_in = self.whole.built_in.get(self.source.language)
        beside = [("built-in", [built_in.columns], BUILT_IN_WEIGHT)] if built_in else []
        file = build_columns(self.whole.count(self.around(cursor, right)), self.whole.tokens.vocab_size)
        return {
            "none": None,
            "built-in": mixture(beside),
            "repository": mixture([("repository", self.repository, DEFAULT_WEIGHT), *beside]),
            "repository+file": mixture([("repository", [*self.repository, file], DEFAULT_WEIGHT), *beside]),
        }

    def around(self, cursor: Cursor, right: bool) -> list[Ints]:
        """The file's own ids without the cursor's line, in two pieces, as the server counts an open document."""
        text = self.source.text
        start, end = (len(text[:place].encode()) for place in (cursor.line_start, cursor.line_end))
        mark = [self.whole.tokens.end_of_text]
        if self.encoded.ends is None:
            parts = [text[: cursor.line_start], text[cursor.line_end :]]
            before, after = (self.whole.retokeniser.encode(part).ids for part in parts)
        else:
            before, after = self.encoded.around(start, end)
        pieces = [np.concatenate((mark, before))]
        return [*pieces, np.concatenate((after, mark))] if right else pieces

    def seen(self, cursor: Cursor) -> str:
        """Whether the whole line stands elsewhere: one of SEEN; versions of the file are no other files."""
        if self.whole.holders[cursor.line] > self.taken_lines[cursor.line]:
            return SEEN[0]
        text = self.source.text
        elsewhere = _stripped_lines(text[: cursor.line_start]) | _stripped_lines(text[cursor.line_end :])
        return SEEN[1] if cursor.line in elsewhere else SEEN[2]


def mixture(pools: Sequence[tuple[str, Sequence[Columns], float]]) -> Mixture | None:
    """Several pools as one prior, or none of none."""
    if not pools:
        return None
    names, columns, weights = zip(*pools, strict=True)
    return Mixture(columns, weights, names)


def _stripped_lines(text: str) -> frozenset[str]:
    """The different lines of a text, without white space around them."""
    return frozenset(line.strip() for line in text.split("\n"))

"""N-grams for an example, without the text that a person would not have written yet.

A package is sorted once. Subtracting the file under test and its near duplicates gives exactly the table of the
other files. Knows ids and texts, no models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ngram_builders.index.mixture import DEFAULT_WEIGHT, Mixture, Signed
from ngram_builders.index.suffix_array import SearchedTexts, build_suffix_array
from ngram_builders.token_space import with_boundaries
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.examples import Example, PackageFile, PackageFiles
from spd_lsp.ngrams.text_encoder import TextEncoder

PRIORS = ("none", "file", "repository", "repository+file")
LINE_SEEN = ("in another file", "in the same file", "new")
_NEAR_DUPLICATE = 0.8  # Jaccard index of identifiers from which two files count as versions of each other
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


class PackageNgrams:
    """The n-grams of a whole package."""

    def __init__(self, package: PackageFiles, tokens: ModelTokenizer) -> None:
        self.tokens = tokens
        self.encoder = TextEncoder(tokens)
        self.files = package.files
        encoded = tokens.encode_batch([file.text for file in package.files])
        self.streams = [with_boundaries(ids, tokens.end_of_text) for ids in encoded]
        self.array = build_suffix_array(self.streams)
        self.identifiers = [frozenset(_IDENTIFIER.findall(file.text)) for file in package.files]
        self.lines = [_stripped_lines(file.text) for file in package.files]
        self.files_with_line = Counter(line for lines in self.lines for line in lines)

    def without(self, file: PackageFile) -> HeldOutNgrams:
        """Return the n-grams of all files but this one and its near duplicates."""
        return HeldOutNgrams(self, file, self.near_duplicates(file))

    def near_duplicates(self, file: PackageFile) -> list[int]:
        """The indices of files with the same or nearly the same identifiers, the file itself among them."""
        own = frozenset(_IDENTIFIER.findall(file.text))
        return [
            i
            for i, (other, known) in enumerate(zip(self.files, self.identifiers, strict=True))
            if other.sha256 == file.sha256 or len(own & known) / max(1, len(own | known)) >= _NEAR_DUPLICATE
        ]


class HeldOutNgrams:
    """The n-grams of a package without one of its files."""

    def __init__(self, package: PackageNgrams, file: PackageFile, removed: Sequence[int]) -> None:
        """`removed`: the indices of the files that are not counted."""
        self.package = package
        self.file = file
        self.texts = SearchedTexts(package.array, frozenset(removed))
        subtracted = build_suffix_array((package.streams[i] for i in removed), lists=False)
        self.repository = [Signed(package.array), Signed(subtracted, -1)]
        self.removed_lines = Counter(line for i in removed for line in package.lines[i])

    def mixtures(self, example: Example) -> dict[str, Mixture | None]:
        """The n-grams of each prior at an example."""
        # The file without the example's line, in two parts, as the server counts an open document.
        boundary = [self.package.tokens.end_of_text]
        before, after = self.package.encoder.around(self.file.text, example.line_start, example.line_end)
        around = [np.concatenate((boundary, before)), np.concatenate((after, boundary))]
        file = build_suffix_array(around, lists=False)
        weight, own, texts = DEFAULT_WEIGHT, [Signed(file)], [self.texts]
        return {
            "none": None,
            "file": Mixture([own], [weight], ("file",)),
            "repository": Mixture([self.repository], [weight], ("repository",), texts=texts),
            "repository+file": Mixture(
                [self.repository, own],
                [weight] * 2,
                ("repository", "file"),
                texts=[*texts, SearchedTexts(file)],
            ),
        }

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

"""Split repositories into passages and counted files: held-out positions, with the tokens before and after each.

The paper takes the first 15 tokens of web pages. Files of code begin with imports, so positions here are drawn
from the whole file. Knows files and a tokenizer, no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Ids
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, count_streams, with_boundaries
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.language_ids import language_of
from ngram_builders.table.format import Columns
from ngram_builders.table.writer import build_columns
from spd_lsp.completion.tokenizer import ModelTokenizer

_HELD_OUT = 6  # one file in so many holds passages, the others are counted
_LANGUAGE = "python"


@dataclass(frozen=True, slots=True)
class Passage:
    """A position in a held-out file."""

    repository: str
    file: str
    ids: tuple[int, ...]  # of the whole file
    at: int  # the first token after the position

    def prefix(self, n: int) -> list[int]:
        """The n tokens before the position, or all there are."""
        return list(self.ids[max(0, self.at - n) : self.at])

    def continuation(self, n: int) -> list[int]:
        """The n tokens that really follow."""
        return list(self.ids[self.at : self.at + n])

    @property
    def group(self) -> tuple[str, str]:
        """Its cluster for confidence intervals."""
        return self.repository, self.file


@dataclass(frozen=True, slots=True)
class RepositorySplit:
    """The passages of a repository's held-out files, and the token streams of its other files."""

    name: str
    passages: list[Passage]
    counted: list[Ids]

    def columns(self, vocab_size: int, orders: Sequence[int] = ORDERS) -> Columns:
        """Count the n-grams of the files that hold no passages."""
        return build_columns(count_streams(self.counted, orders=orders, vocab_size=vocab_size), vocab_size)


def split_repository(
    folder: Path, tokens: ModelTokenizer, *, examples: int, before: int, after: int, seed: int = 0
) -> RepositorySplit:
    """Draw passages with this many tokens before and after them, evenly from the held-out files.

    A text that occurs twice counts once, so that no passage is also counted.
    """
    rng = np.random.default_rng([seed, *folder.resolve().name.encode()])
    texts: dict[bytes, tuple[Path, str]] = {}
    for path in survey(folder).paths:
        if language_of(path) == _LANGUAGE:
            text, fault = read_source_text(str(path))
            if fault is None:
                texts.setdefault(hashlib.sha256(text.encode()).digest(), (path, text))
    files = list(texts.values())
    if len(files) < 2:
        raise UserError(f"{folder} has {len(files)} {_LANGUAGE} files, at least two are needed; name a repository")
    order = rng.permutation(len(files))
    held_out = len(files) // _HELD_OUT + 1
    encoded = list(tokens.encode_batch([files[i][1] for i in order]))
    with_passages = [(files[i][0], ids) for i, ids in zip(order[:held_out], encoded, strict=False)]
    return RepositorySplit(
        folder.resolve().name,
        _draw_passages(folder.resolve(), with_passages, examples, before, after, rng),
        [with_boundaries(ids, tokens.end_of_text) for ids in encoded[held_out:]],
    )


def _draw_passages(
    folder: Path,
    files: Sequence[tuple[Path, Sequence[int]]],
    examples: int,
    before: int,
    after: int,
    rng: np.random.Generator,
) -> list[Passage]:
    """So many passages from files that are long enough, which take turns; no two of a file overlap."""
    candidates = []
    for path, ids in files:
        positions = np.arange(before, len(ids) - after, after)
        candidates += [(turn, path, ids, int(at)) for turn, at in enumerate(rng.permutation(positions))]
    chosen = sorted(candidates, key=lambda candidate: candidate[0])[:examples]
    return [
        Passage(folder.name, path.resolve().relative_to(folder).as_posix(), tuple(ids), at)
        for _, path, ids, at in chosen
    ]

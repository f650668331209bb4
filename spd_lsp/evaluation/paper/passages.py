"""Repositories -> passages: places in files that no count has seen, with the tokens before and after each.

The paper takes the first 15 tokens of web pages. Files of code begin with imports, so places here are drawn from
the whole file, and a prefix is what stands before the place. Knows files and a tokenizer, no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from ngram_builders.arrays import Ids
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, count_streams, stream
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.language_ids import language_of
from ngram_builders.table.format import Columns
from ngram_builders.table.writer import build_columns
from spd_lsp.completion.tokenizer import Tokens

Item = TypeVar("Item")

HELD_OUT = 6  # one file in so many is asked about, the others are counted


@dataclass(frozen=True, slots=True)
class Passage:
    """A place in a file."""

    repository: str
    file: str
    ids: tuple[int, ...]  # of the whole file
    at: int  # the first token after the place

    def prefix(self, n: int) -> list[int]:
        """The n tokens before the place, or all there are."""
        return list(self.ids[max(0, self.at - n) : self.at])

    def continuation(self, n: int) -> list[int]:
        """The n tokens that really follow."""
        return list(self.ids[self.at : self.at + n])


@dataclass(frozen=True, slots=True)
class Source:
    """A repository: what is asked about, and the token streams of its other files."""

    name: str
    language: str | None
    passages: list[Passage]
    counted: list[Ids]

    def columns(self, vocab_size: int, orders: Sequence[int] = ORDERS) -> Columns:
        """The n-grams of the files that are not asked about."""
        return build_columns(count_streams(self.counted, orders=orders, vocab_size=vocab_size), vocab_size)


def read_source(
    folder: Path, tokens: Tokens, *, places: int, before: int, after: int, seed: int = 0, language: str = "python"
) -> Source:
    """Draw places of a repository that have so many tokens before and after them, evenly from its held-out files.

    A text that occurs twice counts once, so that what is asked about is not also counted.
    """
    random = np.random.default_rng([seed, *folder.resolve().name.encode()])
    files = [path for path in survey(folder).paths if language_of(path) == language]
    texts: dict[bytes, tuple[Path, str]] = {}
    for path in files:
        text, fault = read_source_text(str(path))
        if fault is None:
            texts.setdefault(hashlib.sha256(text.encode()).digest(), (path, text))
    order = random.permutation(len(texts))
    known = list(texts.values())
    held_out = len(known) // HELD_OUT + 1
    if len(known) < 2:
        raise UserError(
            f"expected two {language} files or more in {folder}, found {len(known)}; name a repository with source"
        )
    encoded = list(tokens.encode_batch([known[i][1] for i in order]))
    asked = [(known[i][0], ids) for i, ids in zip(order[:held_out], encoded, strict=False)]
    return Source(
        folder.resolve().name,
        language,
        _draw_places(folder, asked, places, before, after, random),
        [stream(ids, tokens.end_of_text) for ids in encoded[held_out:]],
    )


def _draw_places(
    folder: Path,
    asked: Sequence[tuple[Path, Sequence[int]]],
    places: int,
    before: int,
    after: int,
    random: np.random.Generator,
) -> list[Passage]:
    """So many places, taking turns among the files that are long enough; no two of a file overlap."""
    rows = []
    for path, ids in asked:
        slots = np.arange(before, len(ids) - after, after)
        rows.append([(turn, path, ids, int(at)) for turn, at in enumerate(random.permutation(slots))])
    chosen = sorted((one for row in rows for one in row), key=lambda one: one[0])[:places]
    root = folder.resolve()
    return [
        Passage(root.name, path.resolve().relative_to(root).as_posix(), tuple(ids), at)
        for _, path, ids, at in chosen
    ]


def some_of(items: list[Item], limit: int | None, seed: int) -> list[Item]:
    """All, or so many drawn at random, in their order."""
    if limit is None or limit >= len(items):
        return items
    chosen = np.random.default_rng(seed).choice(len(items), limit, replace=False)
    return [items[i] for i in sorted(chosen.tolist())]

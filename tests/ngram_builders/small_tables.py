"""Tables of a few tokens, and their probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ngram_builders.index.mixture import Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.index.table_file import Table, TableSummary, write_table
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.token_space import with_boundaries

END = 0


def write_texts(
    path: Path,
    texts: Sequence[Sequence[int]],
    vocab_size: int = 100,
    *,
    fingerprint: str = "a1b2",
    sources: dict[str, int] | None = None,
) -> None:
    """Write a table of these documents as a build does; END stands before and behind each."""
    array = build_suffix_array([with_boundaries(np.array(text, dtype=np.int64), END) for text in texts])
    summary = TableSummary(
        fingerprint=fingerprint,
        vocab_size=vocab_size,
        tokens=array.tokens,
        files=len(texts),
        sources={"python": len(texts)} if sources is None else sources,
    )
    write_table(path, array, summary)


def writer(*tokens: int, language: str = "python", fingerprint: str = "a1b2") -> Callable[[Path], object]:
    """Return a function that writes a table of one document with these tokens."""
    return lambda path: write_texts(path, [tokens], sources={language: 1}, fingerprint=fingerprint)


def probability_after(table: Table, context: int, token: int) -> float:
    """Return the probability of a token after another."""
    p, _ = Mixture([[Signed(table.array)]], [1.0]).probabilities(np.array([[context]]), np.array([token]))
    return float(p[0, 0, 0])


def names(tables: list[tuple[NgramTable, float]]) -> list[tuple[str, float]]:
    """Return the names and weights of tables."""
    return [(table.name, weight) for table, weight in tables]

"""Tables of a few tokens for registries, and their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.table.format import TableSummary
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table
from tests.ngram_builders.reference import write_texts


def writer(*tokens: int, language: str = "python", fingerprint: str = "a1b2") -> Callable[[Path], TableSummary]:
    """Return a function that writes a table of one document with these tokens."""
    return lambda path: write_texts(path, [[*tokens, 0]], 100, sources={language: 1}, fingerprint=fingerprint)


def probability_after(table: Table, context: int, token: int) -> float:
    """Return the probability of a token after another."""
    p, _ = open_query([[table.columns]], [1.0]).probabilities(np.array([[context]]), np.array([token]))
    return float(p[0, 0, 0])


def names(tables: list[tuple[NgramTable, float]]) -> list[tuple[str, float]]:
    """Return the names and weights of tables."""
    return [(table.name, weight) for table, weight in tables]

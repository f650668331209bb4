"""A stream of ids -> dictionaries of dictionaries, as the paper keeps its n-grams, and their probabilities.

Dimensions: K drafts, L context tokens, O orders, C candidates.
"""

from __future__ import annotations

import marshal
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spd_lsp.evaluation.stream import ORDERS, Stream

__all__ = ["FILE", "AsPublished", "WithTotals", "build"]

Table = dict[tuple[int, ...], dict[int, int]]  # context -> token -> count
Question = tuple[list[tuple[int, ...]], list[int]]
Floats = npt.NDArray[np.float64]

FILE = "dictionaries.marshal"
TOTAL = -1  # no token has this id


def build(stream: Stream, folder: Path) -> None:
    """Count every order into a dictionary of its own, and write them all down."""
    tables: list[Table] = [{} for _ in ORDERS]
    for document in stream.counted:
        ids = document.tolist()
        for order, table in zip(ORDERS, tables, strict=True):
            contexts = zip(*(ids[i:] for i in range(order - 1)), strict=False)
            for context, token in zip(contexts, ids[order - 1 :], strict=False):
                followers = table.get(context)
                if followers is None:
                    table[context] = {token: 1}
                else:
                    followers[token] = followers.get(token, 0) + 1
    (folder / FILE).write_bytes(marshal.dumps(tables))


class Dictionaries:
    """What both ways of asking have in common: the tables, and questions as Python's own values."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        """Load everything."""
        self.tables: list[Table] = marshal.loads((self.folder / FILE).read_bytes())

    def prepare(self, contexts: npt.NDArray[np.integer], candidates: npt.NDArray[np.integer]) -> Question:
        """Its natural input: tuples and a list."""
        return [tuple(context) for context in contexts.tolist()], candidates.tolist()

    def probabilities(self, answer: list[list[list[float]]]) -> Floats:
        """[K, O, C]"""
        return np.array(answer)


class AsPublished(Dictionaries):
    """As the published code asks: per candidate and order, the context's counts are added up anew."""

    def step(self, question: Question) -> list[list[list[float]]]:
        """The answer to one step, [K][O][C]."""
        contexts, candidates = question
        return [
            [
                [probability(table, context[1 - order :], token) for token in candidates]
                for order, table in self.each
            ]
            for context in contexts
        ]

    def open(self) -> None:
        """Load everything."""
        super().open()
        self.each = list(zip(ORDERS, self.tables, strict=True))


def probability(table: Table, context: tuple[int, ...], token: int) -> float:
    """count / total, 0 if the context is unknown."""
    if context not in table:
        return 0.0
    return table[context].get(token, 0) / sum(table[context].values())


class WithTotals(Dictionaries):
    """As well as dictionaries can be asked: totals kept, one look-up of a context for all candidates."""

    def open(self) -> None:
        """Load everything and add up the totals, which go in beside the counts."""
        super().open()
        for table in self.tables:
            for counts in table.values():
                counts[TOTAL] = sum(counts.values())
        self.each = [(1 - order, table.get) for order, table in zip(ORDERS, self.tables, strict=True)]

    def step(self, question: Question) -> list[list[list[float]]]:
        """The answer to one step, [K][O][C]."""
        contexts, candidates = question
        nothing = [0.0] * len(candidates)
        answer = []
        for context in contexts:
            rows = []
            for start, find in self.each:
                counts = find(context[start:])
                if counts is None:
                    rows.append(nothing)
                else:
                    total = counts[TOTAL]
                    rows.append([number / total for number in map(counts.get, candidates, repeat(0))])
            answer.append(rows)
        return answer

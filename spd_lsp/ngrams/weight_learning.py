"""How likely each weight of a table would have made what was accepted: what its weight is learnt from.

In: a mixture that remembers what the model said, and the ids that were accepted. Out: log-likelihoods by weight.
Knows no text and no files. All other tables keep their weights meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from ngram_builders.registry.learnt_weights import WEIGHTS, Learnt, Lesson
from spd_lsp.ngrams.mixture import MAX_CONTEXT, Mixture

_numbers = count(1)
_TINY = 1e-300
_NO_SAY = 1e-3  # difference of log-likelihoods that is not worth comparing
_NO_TOKEN = -1  # beside the accepted one, for what the model found likeliest


class Learnable(NamedTuple):
    """A table whose weight is learnt."""

    pool: int  # in the mixture
    folder: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A completion that may be accepted, with the mixture by which it was made."""

    mixture: Mixture  # one that watches
    tables: Sequence[Learnable]
    history: Sequence[int]  # before the completion
    spell: Callable[[], Sequence[int]]  # the completion, which is put off until it is accepted
    number: int = field(default_factory=_numbers.__next__)  # by which an editor says so

    def learn(self) -> Iterator[Lesson | None]:
        """Yield what is learnt of each table that has a say here; None between two steps, which are short."""
        places = list(self._places())
        for table in self.tables:
            mixtures = [self.mixture.reweighted(table.pool, weight) for weight in WEIGHTS]
            rows = []
            for place in places:
                yield None
                first, last = place.log_p(mixtures[0]), place.log_p(mixtures[-1])
                if abs(last - first) > _NO_SAY:
                    rows.append([first, *map(place.log_p, mixtures[1:-1]), last])
            if rows:
                yield Lesson(table.folder, table.name, Learnt(len(rows), tuple(np.sum(rows, axis=0).tolist())))

    def _places(self) -> Iterator[_Place]:
        """The accepted tokens of which it is known what the model said."""
        before = [-1] * MAX_CONTEXT + [*self.history]
        ids = self.spell()
        for n, token in enumerate(ids):
            history = tuple([*before, *ids[:n]][-MAX_CONTEXT:])
            if (said := self.mixture.said_after(history, token)) is not None:
                yield _Place(history, token, *said)


class _Place(NamedTuple):
    """An accepted token, and what the model said there."""

    history: tuple[int, ...]
    token: int
    p: float
    top: float  # of the likeliest token

    def log_p(self, mixture: Mixture) -> float:
        """The mixture's logarithm of the token's probability."""
        ids = np.array([self.token, _NO_TOKEN])
        p = np.array([self.p, self.top])
        return math.log(max(float(mixture.mix([self.history], ids, p)[0, 0]), _TINY))

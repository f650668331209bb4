"""How much to believe a table beside this very model: the model reads some of its text, and weights follow.

In: a model, pools of counts, token streams that the first pool was counted from. Out: weights and what they gain.
Knows no files and no registry. What expectation maximisation does stands in `ngram_builders.weights`.

Legend: T places in text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ngram_builders.counts import count_streams, negate
from ngram_builders.layout import Columns, Weights
from ngram_builders.weights import Observations, fit, join, mixed, observe, perplexity
from ngram_builders.writer import columns_of
from spd_lsp.interpolation import ROWS, whole_rows

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

PLACES = 8_000  # places that the model is asked about: more moves the weights by hundredths
WINDOW = 512  # tokens of a document that the model reads at once
FEWEST = 500  # places below which weights would follow chance


class Reader(Protocol):
    """A model that can say how likely a text was."""

    def likelihoods(self, ids: Sequence[int]) -> npt.NDArray[np.floating]:
        """How likely each id was after those before it: [T] -> [T - 1]."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Weights for one model beside one table, and the perplexity of the text they were not told of."""

    weights: Weights
    places: int
    model_alone: float
    shipped: float  # with the weights that serve where nothing was fitted
    fitted: float  # judged by weights from the other half of the text


def fit_beside(
    model: Reader,
    pools: Sequence[Sequence[Columns]],
    shares: Sequence[float],
    streams: Iterable[Ids],
    orders: Sequence[int],
    places: int = PLACES,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Fitted | None:
    """Weights for `pools` beside a model, from documents that are taken back from the first pool while judged.

    None if there is too little text. Each half of the text is judged by weights from the other half.
    """
    seen: list[Observations] = []
    base: list[Floats] = []
    told = 0
    for window, stream in windows(streams):
        taken = columns_of(negate(count_streams([stream], orders=orders, vocab_size=pools[0][0].vocab_size)),
                           pools[0][0].vocab_size)  # fmt: skip
        seen.append(observe([[*pools[0], taken], *pools[1:]], shares, window))
        base.append(np.asarray(model.likelihoods(window.tolist()), dtype=np.float64))
        told += len(window) - 1
        report(min(told, places), places)
        if told >= places:
            break
    if told < FEWEST:
        return None
    return judge(seen, base)


def windows(streams: Iterable[Ids]) -> Iterator[tuple[Ids, Ids]]:
    """A piece of each document, from its start, and the whole document."""
    for stream in streams:
        if len(stream) > 1:
            yield stream[:WINDOW], stream


def judge(seen: Sequence[Observations], base: Sequence[Floats]) -> Fitted:
    """Fit on everything; tell what that gains by fitting on one half and judging the other."""
    whole, p_model = join(seen), np.concatenate(base)
    halves = [[i for i in range(len(seen)) if i % 2 == half] for half in (0, 1)]
    crossed = []
    shipped = tuple(map(tuple, whole_rows(ROWS)[1:].tolist()))
    for fitted_on, judged_on in (halves, halves[::-1]):
        if fitted_on and judged_on:
            weights = fit(*halved(seen, base, fitted_on), shipped)
            crossed.append(mixed(*halved(seen, base, judged_on), weights))
    return Fitted(
        weights=fit(whole, p_model, shipped),
        places=len(p_model),
        model_alone=perplexity(p_model),
        shipped=perplexity(mixed(whole, p_model, shipped)),
        fitted=perplexity(np.concatenate(crossed)) if crossed else float("nan"),
    )


def halved(
    seen: Sequence[Observations], base: Sequence[Floats], members: Sequence[int]
) -> tuple[Observations, Floats]:
    """What was observed of some documents."""
    return join([seen[i] for i in members]), np.concatenate([base[i] for i in members])

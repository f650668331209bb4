"""Fits order weights of a table to a model, on some of the text that the table was counted from.

In: a model, pools of counts, token streams of the first pool. Out: weights and what they gain. Knows no files and
no registry. Expectation maximisation is in `ngram_builders.table.order_weights`.

Legend: T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, Ids
from ngram_builders.ngrams import count_streams, negate
from ngram_builders.table.format import Columns
from ngram_builders.table.order_weights import (
    Observations,
    OrderWeights,
    expand_order_weights,
    fit_order_weights,
    join_observations,
    mix_probabilities,
    observe_stream,
    perplexity,
)
from ngram_builders.table.writer import build_columns
from spd_lsp.ngrams.mixture import ORDER_WEIGHTS, doubt

Observed = tuple[Observations, F64]  # of a document: probabilities by order, and by the model as it reads them

_MAX_FIT_TOKENS = 8_000  # more change the weights by hundredths
_WINDOW = 512  # tokens of a document that the model reads at once
MIN_FIT_TOKENS = 500  # with fewer, weights would be chance


class ScoringModel(Protocol):
    """A model that can score a text."""

    def token_probabilities(self, ids: Sequence[int]) -> npt.NDArray[np.floating]:
        """Return the probability of each id after those before it, and of the likeliest one. [T] -> [2, T - 1]"""


@dataclass(frozen=True, slots=True)
class FitResult:
    """Order weights of a table for a model, and perplexities of the text with and without them."""

    weights: OrderWeights
    places: int
    model_alone: float
    shipped: float  # with the default weights
    fitted: float  # cross-validated: each half by the weights of the other


def observe_documents(
    model: ScoringModel,
    pools: Sequence[Sequence[Columns]],
    shares: Sequence[float],
    streams: Iterable[Ids],
    orders: Sequence[int],
    places: int = _MAX_FIT_TOKENS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Observed]:
    """Yield the probabilities of documents of the first pool, each of them taken out of the counts meanwhile."""
    count = 0
    for window, stream in windows(streams):
        taken = build_columns(negate(count_streams([stream], orders=orders, vocab_size=pools[0][0].vocab_size)),
                           pools[0][0].vocab_size)  # fmt: skip
        seen = observe_stream([[*pools[0], taken], *pools[1:]], shares, window)
        yield seen, np.asarray(model.token_probabilities(window.tolist()), dtype=np.float64)
        count += len(window) - 1
        report(min(count, places), places)
        if count >= places:
            return


def windows(streams: Iterable[Ids]) -> Iterator[tuple[Ids, Ids]]:
    """Yield the start of each document, and the whole document."""
    for stream in streams:
        if len(stream) > 1:
            yield stream[:_WINDOW], stream


def fit_weights(read: Sequence[Observed]) -> FitResult | None:
    """Fit weights on all documents, and cross-validate them; None if there are too few tokens."""
    if sum(of_model.shape[1] for _, of_model in read) < MIN_FIT_TOKENS:
        return None
    whole, base, odds = _joined(read)
    crossed = []
    shipped = tuple(map(tuple, expand_order_weights(ORDER_WEIGHTS)[1:].tolist()))
    for fitted_on, judged_on in ((read[::2], read[1::2]), (read[1::2], read[::2])):
        if fitted_on and judged_on:
            seen, p, odds_of_judged = _joined(judged_on)
            crossed.append(mix_probabilities(seen, p, _fitted(fitted_on, shipped), odds_of_judged))
    return FitResult(
        weights=_fitted(read, shipped),
        places=len(base),
        model_alone=perplexity(base),
        shipped=perplexity(mix_probabilities(whole, base, shipped, odds)),
        fitted=perplexity(np.concatenate(crossed)) if crossed else float("nan"),
    )


def _fitted(read: Sequence[Observed], initial: OrderWeights) -> OrderWeights:
    seen, p_model, odds = _joined(read)
    return fit_order_weights(seen, p_model, initial, odds)


def _joined(read: Sequence[Observed]) -> tuple[Observations, F64, F64]:
    """Several documents as one: what the orders say, what the model says, and the odds by its doubt."""
    p_model, top = np.concatenate([of_model for _, of_model in read], axis=1)
    return join_observations([seen for seen, _ in read]), p_model, doubt(top)

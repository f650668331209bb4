"""How much to believe a table beside this very model: the model reads some of its text, and weights follow.

In: a model, pools of counts, token streams that the first pool was counted from. Out: weights and what they gain.
Knows no files and no registry. What expectation maximisation does stands in `ngram_builders.table.order_weights`.

Legend: T places in text.
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
    fit_order_weights,
    join_observations,
    mix_probabilities,
    observe_stream,
    perplexity,
)
from ngram_builders.table.writer import build_columns
from spd_lsp.ngrams.interpolation import ORDER_WEIGHTS, expand_order_weights

Observed = tuple[Observations, F64]  # of a document: what orders and model said of each token

MAX_FIT_TOKENS = 8_000  # places that the model is asked about: more moves the weights by hundredths
_WINDOW = 512  # tokens of a document that the model reads at once
MIN_FIT_TOKENS = 500  # places below which weights would follow chance


class ScoringModel(Protocol):
    """A model that can say how likely a text was."""

    def token_probabilities(self, ids: Sequence[int]) -> npt.NDArray[np.floating]:
        """How likely each id was after those before it: [T] -> [T - 1]."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """Weights for one model beside one table, and the perplexity of the text they were not told of."""

    weights: OrderWeights
    places: int
    model_alone: float
    shipped: float  # with the weights that serve where nothing was fitted
    fitted: float  # judged by weights from the other half of the text


def observe_documents(
    model: ScoringModel,
    pools: Sequence[Sequence[Columns]],
    shares: Sequence[float],
    streams: Iterable[Ids],
    orders: Sequence[int],
    places: int = MAX_FIT_TOKENS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Observed]:
    """What orders and model say of documents that the first pool was counted from, each taken back meanwhile."""
    told = 0
    for window, stream in windows(streams):
        taken = build_columns(negate(count_streams([stream], orders=orders, vocab_size=pools[0][0].vocab_size)),
                           pools[0][0].vocab_size)  # fmt: skip
        seen = observe_stream([[*pools[0], taken], *pools[1:]], shares, window)
        yield seen, np.asarray(model.token_probabilities(window.tolist()), dtype=np.float64)
        told += len(window) - 1
        report(min(told, places), places)
        if told >= places:
            return


def windows(streams: Iterable[Ids]) -> Iterator[tuple[Ids, Ids]]:
    """A piece of each document, from its start, and the whole document."""
    for stream in streams:
        if len(stream) > 1:
            yield stream[:_WINDOW], stream


def fit_weights(read: Sequence[Observed]) -> FitResult | None:
    """Weights fitted on all that was read, and what they gain: each half of it judged by weights from the other.

    None if there is too little.
    """
    if sum(len(p_model) for _, p_model in read) < MIN_FIT_TOKENS:
        return None
    whole, base = _joined(read)
    crossed = []
    shipped = tuple(map(tuple, expand_order_weights(ORDER_WEIGHTS)[1:].tolist()))
    for fitted_on, judged_on in ((read[::2], read[1::2]), (read[1::2], read[::2])):
        if fitted_on and judged_on:
            crossed.append(mix_probabilities(*_joined(judged_on), fit_order_weights(*_joined(fitted_on), shipped)))
    return FitResult(
        weights=fit_order_weights(whole, base, shipped),
        places=len(base),
        model_alone=perplexity(base),
        shipped=perplexity(mix_probabilities(whole, base, shipped)),
        fitted=perplexity(np.concatenate(crossed)) if crossed else float("nan"),
    )


def _joined(read: Sequence[Observed]) -> Observed:
    """What was observed of some documents, as of one."""
    return join_observations([seen for seen, _ in read]), np.concatenate([p_model for _, p_model in read])

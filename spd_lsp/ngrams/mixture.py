"""What n-gram tables say of the next token: p_ngram for k drafts at once, from several weighted tables.

Comes in: the ids of each draft with the text before it, and candidates. Goes out: probabilities. Knows no text.

Legend: W pools, K drafts, C candidates, N orders from 2 on, M longest orders seen, from none on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Floats, Ids
from ngram_builders.errors import UserError
from ngram_builders.index.occurrences import Occurrence, SearchedTexts, find_occurrences
from ngram_builders.index.query import ORDERS, Pool, Query, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.index.table_file import Table
from ngram_builders.registry.ngram_table import DEFAULT_WEIGHT
from spd_lsp.settings import Settings

FileName = str | os.PathLike[str]
NamedNgrams = FileName | Sequence[FileName | Sequence[int]]  # files of tables, and token ids to count
Histories = Sequence[Sequence[int]] | Ids

MAX_CONTEXT = ORDERS[-1] - 1  # tokens of context
PAPER_LAMBDAS = np.array([0.01, 0.04, 0.15, 0.18, 0.12])  # of orders 2 ... 6, appendix B of the paper
# Weight of each n-gram order beside a model that is sure of nothing (`doubt` 1), one row for each longest matched
# context, or none. Fitted by expectation maximisation beside the starter, on packages that neither it nor a table
# had seen, before there was doubt; fitted to other models or repositories they gained 2 % of perplexity at most.
ORDER_WEIGHTS = np.array(  # [M, N]
    [
        [0, 0, 0, 0, 0],
        [0.089, 0, 0, 0, 0],
        [0.048, 0.090, 0, 0, 0],
        [0.030, 0.090, 0.102, 0, 0],
        [0.019, 0.056, 0.119, 0.092, 0],
        [0.005, 0.035, 0.075, 0.123, 0.383],
    ]
)
_TINY = 1e-300


class Mixture:
    """A weighted mixture of pools of counts; calling it gives p_ngram. Counts within a pool are summed."""

    def __init__(
        self,
        pools: Sequence[Pool],
        weights: Sequence[float],
        names: Sequence[str] = (),
        texts: Sequence[SearchedTexts] = (),
    ) -> None:
        self.texts = texts
        self.pools = pools
        self.weights = tuple(weights)
        self.query = Query(pools, [weight / DEFAULT_WEIGHT for weight in weights])
        self.names = tuple(names)
        self.order_weights = ORDER_WEIGHTS.tolist()
        self.reach = MAX_CONTEXT

    def adjusted(self, factor: float, longest: int) -> Mixture:
        """Return the mixture with `factor` times the odds against the model, and n-grams of `longest` at most.

        Example: factor 2, a row of order weights whose sum is 1/2 -> 2/3, shared among the orders as before.
        """
        if factor == 1 and longest >= ORDERS[-1]:
            return self
        other = copy(self)
        weights = np.array(self.order_weights)
        total = weights.sum(axis=-1, keepdims=True)
        other.order_weights = (factor * weights / (1 - total + factor * total)).tolist()
        other.reach = longest - 1
        return other

    def occurrences(self, history: Sequence[int], follow: int) -> list[Occurrence]:
        """Return where the end of a history stands in the texts that were counted: see `find_occurrences`."""
        return find_occurrences(self.texts, history, follow)

    def contexts(self, histories: Histories) -> Ids:
        """Return the contexts to look up, padded with -1. Example: [[5, 7]] -> [[-1, -1, -1, 5, 7]]."""
        contexts = np.full((len(histories), MAX_CONTEXT), -1, dtype=np.int64)
        for row, history in zip(contexts, histories, strict=True):
            tail = history[-self.reach :]
            row[MAX_CONTEXT - len(tail) :] = tail
        return contexts

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """p_ngram(x) = sum_n lambda_n p_n(x | last n-1 tokens), section 3.2. -> [K, C].

        An order whose context no table has seen adds nothing, as in the paper.
        """
        p_n, _ = self.query.probabilities(self.contexts(histories), candidates)
        return np.asarray(np.einsum("n,knc->kc", PAPER_LAMBDAS, p_n))

    def mix(self, histories: Histories, candidates: Ids, p: Floats) -> Floats:
        """p <- (1 - sum_n w[m, n]) p + sum_n w[m, n] p_n, m the highest order seen of a history.

        Candidates each once; p [C] or [K, C] -> [K, C]. The odds of w are multiplied by the model's `doubt`, which
        the largest p says.
        Pools of less than the usual weight together have that much less of a say: see `trust` and `Query.mix`.

        Example: p .1, of a history only the bigram context seen, with p_2 .5 and w[2, 2] .09 -> .133.
        """
        rows = np.broadcast_to(p, (len(histories), len(candidates)))
        mixed = [
            self.query.mix(context, candidates, row, self.order_weights, _doubt(row.max(initial=0.0)))
            for context, row in zip(self.contexts(histories)[:, None], rows, strict=True)
        ]
        return np.concatenate(mixed)

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """Return the top n tokens of p [V] and the `successors`, and `mix` of them, in one call: [C], [K, C].

        Where p is below 0 a token may not follow.
        """
        p = np.ascontiguousarray(p, dtype=np.float32)
        total = p.sum()
        if total < 0.5:  # some may not follow
            total = np.maximum(p, 0).sum()
        doubt = _doubt(p.max(initial=0.0) / max(total, _TINY))
        return self.query.mix_candidates(self.contexts(histories), p, n, self.order_weights, doubt)

    def successors(self, histories: Histories, n: int) -> Ids:
        """Return up to n tokens per pool and history that followed its longest known context, each once."""
        return self.query.successors(self.contexts(histories), n)


def _doubt(top: float) -> float:
    """What the odds of n-grams beside a model are multiplied by, where its likeliest token has this probability.

    So a model's strength is measured at every token: a good one is more often sure. With the starter, SmolLM2 and
    Qwen2.5-Coder this one rule gives lines a higher likelihood than the best constant of each.
    Example: a row whose weights sum to 1/2, beside a token of .9 -> 1/11.
    """
    return max(1 - float(top), 0.0)


def adjusted(mixture: Mixture | None, settings: Settings) -> Mixture | None:
    """Return the mixture with the weight and the longest order of the settings."""
    return mixture and mixture.adjusted(settings.ngram_weight, settings.max_order)


def open_mixture(named: NamedNgrams, vocabulary: int, weight: float = 1.0) -> Mixture | None:
    """The n-grams that a program names itself, for a model with this many tokens; None if there are none.

    Token ids are those of the model's own tokenizer.
    """
    parts = [named] if isinstance(named, (str, os.PathLike)) else named
    pools, texts = [], []
    for part in parts:
        if not isinstance(part, (str, os.PathLike)):
            texts.append(ids := np.asarray(part, dtype=np.int64))
            if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
                raise UserError(f"token ids are from 0 to {vocabulary - 1}, not {ids.min()} to {ids.max()}")
            continue
        table = Table.open(Path(part))
        if table.summary.vocab_size > vocabulary:
            raise UserError(
                f"{part} has {table.summary.vocab_size:,} tokens, but the model has {vocabulary:,}: they belong "
                "to different models; build the table with `spd-lsp build-ngrams --model` and this one"
            )
        pools.append(table.array)
    if texts:
        pools.append(build_suffix_array(texts))
    if not pools:
        return None
    weights = [1 / len(pools)] * len(pools)
    return Mixture([[Signed(array)] for array in pools], weights).adjusted(weight, ORDERS[-1])

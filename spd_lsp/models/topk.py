"""The few logits that choosing drafts needs, found where the logits are: a vocabulary need not leave a GPU.

Choosing asks for the model's likeliest tokens, for those that n-grams propose, whatever the model thinks of them,
and for the sum that makes probabilities of logits. Which tokens n-grams propose is known before the pass.
At 152,000 tokens the host takes 0.2 ms to choose among all, and 0.05 ms among few.

Legend: N rows, R likeliest tokens, A asked ones, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.logits import log_z, top

Mixture = tuple[Sequence[int], Floats]  # ids and the weights of their embeddings


@dataclass(frozen=True, slots=True, eq=False)
class Asking:
    """A position of each of N rows, and which logits after it are wanted. Engines read it as an embedded one."""

    mixtures: Sequence[Mixture]  # N
    count: int  # R
    asked: Sequence[Ids]  # A ids for each row
    temperature: float = 1.0  # tau


@dataclass(frozen=True, slots=True, eq=False)
class Likeliest:
    """What was wanted of one row."""

    ids: Ids  # [R], likeliest first
    logits: Floats  # [R]
    asked: Floats  # [A], logits of the asked tokens; -inf for one that the model does not have
    log_z: float  # log of the sum over the vocabulary of exp(logit / tau)


def chosen(logits: Floats, count: int, asked: Ids, temperature: float) -> Likeliest:
    """The same from all logits, on the host. [V]."""
    best = top(logits, count)
    return Likeliest(best, logits[best], _of_asked(logits, asked), log_z(logits, temperature))


def _of_asked(logits: Floats, asked: Ids) -> Floats:
    """The logits of asked tokens, -inf beyond the vocabulary. [V], [A] -> [A]."""
    found: Floats = np.where(asked < len(logits), logits[np.minimum(asked, len(logits) - 1)], -np.inf)
    return found


def unpacked(row: Floats, count: int, asked: int) -> Likeliest:
    """What an engine gives for a row: R logits, R ids, A logits and the sum's logarithm. Ids are exact to 2^24."""
    logits, ids, wanted, (log_z,) = np.split(row, np.cumsum([count, count, asked]))
    return Likeliest(ids.astype(np.int64), logits, wanted, float(log_z))

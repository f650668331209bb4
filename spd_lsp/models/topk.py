"""The few logits that choosing drafts needs, selected where the logits are: a vocabulary need not leave a GPU.

Choosing needs the model's top k tokens, the tokens that n-grams propose, whatever the model thinks of them, and
the sum that turns logits into probabilities. Which tokens n-grams propose is known before the pass. With 152,000
tokens the host takes 0.2 ms to choose among all, and 0.05 ms among few.

Legend: N rows, K top tokens, X extra tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.logits import log_z, top

_NO_TOKEN = np.iinfo(np.int64).max  # beyond every vocabulary
WeightedTokens = tuple[Sequence[int], Floats]  # ids and the weights of their embeddings


@dataclass(frozen=True, slots=True, eq=False)
class TopKRequest:
    """Which logits of N rows are wanted."""

    k: int
    extra_ids: Sequence[Ids]  # X ids for each row
    temperature: float = 1.0  # tau

    def padded(self) -> TopKRequest:
        """The request with as many extra ids for each row, those added of no token."""
        longest = max(map(len, self.extra_ids))
        padded = [np.pad(ids, (0, longest - len(ids)), constant_values=_NO_TOKEN) for ids in self.extra_ids]
        return TopKRequest(self.k, padded, self.temperature)


@dataclass(frozen=True, slots=True, eq=False)
class TopK:
    """The selected logits of one row."""

    ids: Ids  # [K], most likely first
    logits: Floats  # [K]
    extra_logits: Floats  # [X]; -inf for an id that the model does not have
    log_z: float  # log of the sum over the vocabulary of exp(logit / tau)


def select_top_k(logits: Floats, k: int, extra_ids: Ids, temperature: float) -> TopK:
    """Select on the host, from all logits [V]."""
    best = top(logits, k)
    known = np.minimum(extra_ids, len(logits) - 1)
    extra_logits = np.where(extra_ids < len(logits), logits[known], -np.inf)
    return TopK(best, logits[best], extra_logits, log_z(logits, temperature))


def unpack_top_k(row: Floats, k: int, extra: int) -> TopK:
    """What an engine returns for a row: K logits, K ids, X logits or more, and log z. Ids are exact up to 2^24."""
    logits, ids, extra_logits, _ = np.split(row, np.cumsum([k, k, extra]))
    return TopK(ids.astype(np.int64), logits, extra_logits, float(row[-1]))

"""The NumPy decoder as an engine: ids and mixtures in, logits out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Pass, Runner
from spd_lsp.models.numpy.decoder import Decoder
from spd_lsp.models.numpy.joined_cache import Together
from spd_lsp.models.numpy.kv_cache import Row, Rows
from spd_lsp.models.topk import Mixture


class NumpyRunner(Runner):
    """A decoder with the memory of some prompts."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.max_positions = decoder.shape.max_positions
        self.device = "cpu"
        super().__init__()

    def empty(self) -> Row:
        """As in `Runner`."""
        shape = self.decoder.shape
        return Row(len(self.decoder.layers), shape.key_heads, shape.head_width)

    def superpose(self, rows: Sequence[Mixture]) -> Floats:
        """As in `Runner`."""
        embedding = self.decoder.embedding
        mixed = [np.asarray(weights, embedding.dtype) @ embedding[list(ids)] for ids, weights in rows]
        return np.stack(mixed)

    def forward(self, embedded: Floats, cache: Row | Rows) -> Floats:
        """As in `Runner`."""
        return self.decoder.head(self.decoder.read(embedded, cache))

    def read(self, ids: Sequence[Sequence[int]], cache: Row | Rows, *, last: bool = False) -> Floats:
        """As in `Runner`."""
        hidden = self.decoder.read(self.embed(ids), cache)
        return self.decoder.head(asked(hidden, len(ids), last)).reshape(len(ids), -1, len(self.decoder.embedding))

    def together(self, passes: Sequence[Pass]) -> list[Floats]:
        """As in `Runner`, in one pass over the positions of all."""
        inputs = [self.embed(one.ids) if one.embedded is None else one.embedded for one in passes]  # [M_i, D] each
        counts = [len(x) for x in inputs]
        memory = Together([one.cache for one in passes], counts)
        hidden = np.split(self.decoder.read(np.concatenate(inputs), memory), np.cumsum(counts)[:-1])
        wanted = [
            part if one.embedded is not None else asked(part, len(one.ids), one.last)
            for one, part in zip(passes, hidden, strict=True)
        ]
        logits = self.decoder.head(np.concatenate(wanted))
        parts = np.split(logits, np.cumsum([len(part) for part in wanted])[:-1])
        return [
            part if one.embedded is not None else part.reshape(len(one.ids), -1, part.shape[1])
            for one, part in zip(passes, parts, strict=True)
        ]

    def embed(self, ids: Sequence[Sequence[int]]) -> Floats:
        """Ids of rows as positions: [N, T] -> [N T, D]."""
        found: Floats = self.decoder.embedding[[token for row in ids for token in row]]
        return found


def asked(hidden: Floats, rows: int, last: bool) -> Floats:
    """Of positions of rows [N T, D], those whose logits are asked for: all, or the last of each [N, D]."""
    return hidden.reshape(rows, -1, hidden.shape[1])[:, -1] if last else hidden

"""The NumPy decoder as an engine: ids and mixtures in, logits out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spd_lsp.engine.keys_values import Row, Rows
from spd_lsp.engine.numpy_decoder import Decoder
from spd_lsp.engine.runner import Floats, Mixture, Runner


class NumpyRunner(Runner):
    """A decoder with the memory of some prompts."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.max_positions = decoder.max_positions
        self.device = "cpu"
        super().__init__()

    def empty(self) -> Row:
        """As in `Runner`."""
        return Row(len(self.decoder.layers), self.decoder.key_heads, self.decoder.head_width)

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
        rows, each = len(ids), len(ids[0])
        flat = [token for row in ids for token in row]
        hidden = self.decoder.read(self.decoder.embedding[flat], cache).reshape(rows, each, -1)  # [N, T, D]
        asked = hidden[:, -1:] if last else hidden
        return self.decoder.head(asked.reshape(-1, asked.shape[-1])).reshape(rows, asked.shape[1], -1)

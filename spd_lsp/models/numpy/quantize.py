"""The weights of a transformers network in 8 bits, written one matrix after the other.

Each output has a scale of its own, so that its largest weight becomes 127.

Legend: I inputs, O outputs, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ngram_builders.arrays import Floats
from spd_lsp.models.checkpoint.validate import InvalidWeights
from spd_lsp.models.checkpoint.weight_cache import TensorWriter
from spd_lsp.models.numpy.convert import decoder_config
from spd_lsp.models.numpy.weights import EMBEDDING, NORM, Weights

_BLOCK = 1 << 18  # numbers that are converted at once; they stay in the processor's cache
_SMALLEST_SCALE = 1e-12  # of an output without weights


def write_in_8_bits(
    network: Any,
    out: TensorWriter,
    note: Callable[[float], None],
    give_back: Callable[[Tensor], None],
) -> dict[str, Any]:
    """Write a network's weights; the record with which `read_decoder` finds them.

    `note` is given the share that is done, `give_back` each part of a matrix that was written. `UnsupportedModel`
    for another architecture, `InvalidWeights` for NaN.
    """
    config = decoder_config(network)
    weights = _QuantizedWeights(network, out, note, give_back)
    layers = network.config.get_text_config().num_hidden_layers
    return {
        "shape": {**asdict(config), "frequencies": config.frequencies.tolist()},
        "layers": [weights.layer_parts(number, "gated_silu", "gelu") for number in range(layers)],
        "norm": weights.norm(NORM),
        "embedding": weights.embedding(),
        "head": weights.fuse(weights.head),
    }


class _QuantizedWeights(Weights):
    """Parameters as places of what was written of them."""

    def __init__(
        self,
        network: Any,
        out: TensorWriter,
        note: Callable[[float], None],
        give_back: Callable[[Tensor], None],
    ) -> None:
        parameters = dict(network.named_parameters())
        super().__init__(parameters.get, 0.0)
        self.out, self.note, self.give_back = out, note, give_back
        self.total, self.done = sum(parameter.numel() for parameter in parameters.values()), 0

    def norm(self, name: str) -> dict[str, Any]:
        """As in `Weights`."""
        return {kind: self._vector(self.find(f"{name}.{kind}")) for kind in ("weight", "bias")}

    def fuse(self, *names: str) -> dict[str, Any]:
        """As in `Weights`."""
        scales: list[Floats] = []
        matrices = {name: self.get(name) for name in names}
        values = self.out.write_rows(self._quantized(matrices, scales), sum(map(len, matrices.values())))
        biases = self.biases(names)
        return {
            "values": values,
            "scales": self.out.write(*scales),
            "bias": self._vector(torch.cat([bias.detach() for bias in biases])) if biases else None,
        }

    def embedding(self) -> Any:
        """The token embeddings, in the precision in which they are stored."""
        rows = self.get(EMBEDDING).detach()
        return self.out.write_rows(self._unchanged(rows), len(rows))

    def _vector(self, vector: Tensor | None) -> Any:
        return None if vector is None else self.out.write(vector.detach().float().numpy())

    def _unchanged(self, matrix: Tensor) -> Iterator[np.ndarray[Any, Any]]:
        """The rows of the embedding as they are."""
        for part in torch.split(matrix, _rows_of(matrix)):
            yield _stored(self._checked(EMBEDDING, part))
            self.give_back(part)

    def _quantized(self, matrices: dict[str, Tensor], scales: list[Floats]) -> Iterator[Floats]:
        """The rows of all matrices in 8 bits; their scales are appended."""
        for name, matrix in matrices.items():
            for part in torch.split(matrix.detach(), _rows_of(matrix)):
                rows = part.float()
                largest = self._checked(name, rows.abs().amax(dim=1))
                scale = (largest / 127).clamp(min=_SMALLEST_SCALE)
                scales.append(scale.numpy())
                yield (rows / scale[:, None]).round_().to(torch.int8).numpy()
                self.give_back(part)
                self.done += part.numel()
                self.note(min(1.0, self.done / self.total))

    def _checked(self, name: str, numbers: Tensor) -> Tensor:
        """The numbers, if they are some."""
        if not numbers.sum(dtype=torch.float32).isfinite():
            raise InvalidWeights(f"there is NaN in {name}.weight; restore the files")
        return numbers


def _rows_of(matrix: Tensor) -> int:
    """How many rows make a block."""
    return max(1, _BLOCK // matrix.shape[1])


def _stored(rows: Tensor) -> np.ndarray[Any, Any]:
    """The bits of bfloat16, which NumPy does not know, or the numbers themselves."""
    return (rows.view(torch.uint16) if rows.dtype == torch.bfloat16 else rows).numpy()

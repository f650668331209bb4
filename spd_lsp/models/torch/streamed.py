"""A network that computes in single precision with weights that stay as they are in their files.

Each weight is converted when it is used and dropped after: a pass takes the memory of one matrix.

Legend: M positions, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ROWS = 4096  # of a matrix at once


def compute_in_single_precision(network: Any, give_back: Callable[[Tensor], None]) -> None:
    """Make a network do that; each part of a matrix is given back once it was used."""
    for module in network.modules():
        if isinstance(module, nn.Embedding):
            module.register_forward_hook(partial(_widen, give_back))
        elif isinstance(module, nn.Linear):
            module.forward = partial(_linear, module, give_back)  # type: ignore[method-assign]
        elif any(True for _ in module.parameters(recurse=False)):
            _convert_meanwhile(module)


def _widen(give_back: Callable[[Tensor], None], module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """The embeddings of some tokens in single precision."""
    output = output.float()
    give_back(module.weight)  # type: ignore[arg-type]
    return output


def _linear(module: nn.Linear, give_back: Callable[[Tensor], None], x: Tensor) -> Tensor:
    """x W^T + b, some rows of W after the other: [M, I] -> [M, O]."""
    y = x.new_empty(*x.shape[:-1], len(module.weight))  # else it would fragment the copies' memory
    for number, rows in enumerate(torch.split(module.weight, _ROWS)):
        y[..., number * _ROWS :][..., : len(rows)] = F.linear(x, rows.float())
        give_back(rows)
    return y if module.bias is None else y + module.bias.float()


def _convert_meanwhile(module: nn.Module) -> None:
    """Give a module's own parameters single precision while it runs."""
    stored: dict[str, Tensor] = {}

    def convert(module: nn.Module, inputs: Any) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            stored[name] = parameter.data
            parameter.data = parameter.data.float()

    def restore(module: nn.Module, inputs: Any, output: Any) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            parameter.data = stored.pop(name)

    module.register_forward_pre_hook(convert)
    module.register_forward_hook(restore)

"""Save and load checkpoints of a training run: model, optimiser and progress, in two safetensors files.

One is exact. The other is a fifth of its size, for another machine: weights with eight significant bits, which
compress well, without optimiser state, which about twenty steps restore. A file is written beside the old one and
then replaces it, so an interrupted save loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FULL_FILE = "checkpoint.safetensors"
WEIGHTS_FILE = "weights.safetensors"  # used if the exact one is missing
_STATE = "adamw"  # the names of the optimiser's tensors begin with it


def save(folder: Path, model: nn.Module, optimiser: Optimizer, progress: DataclassInstance) -> None:
    """Write everything a resumed run needs."""
    weights = {f"model/{name}": parameter.detach() for name, parameter in model.named_parameters()}
    state = {
        f"{_STATE}/{index}/{name}": value
        for index, values in optimiser.state_dict()["state"].items()
        for name, value in values.items()
    }
    _write(folder / FULL_FILE, weights | state, progress)
    _write(folder / WEIGHTS_FILE, {name: round_weights(weight) for name, weight in weights.items()}, progress)


def _write(path: Path, tensors: Mapping[str, Tensor], progress: DataclassInstance) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        temporary,
        metadata={"progress": json.dumps(asdict(progress))},
    )
    temporary.replace(path)


def round_weights(tensor: Tensor) -> Tensor:
    """Round to float16 with eight significant bits; the three zero bits compress to nothing."""
    bits = tensor.half().view(torch.int16)
    return ((bits + 4) & -8).view(torch.float16)


def load(folder: Path, model: nn.Module, optimiser: Optimizer | None = None) -> dict[str, Any]:
    """Fill model and optimiser from the checkpoint, if there is one, and return its progress."""
    exact = (folder / FULL_FILE).exists()
    if not exact and not (folder / WEIGHTS_FILE).exists():
        return {}
    with safe_open(folder / (FULL_FILE if exact else WEIGHTS_FILE), framework="pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        progress: dict[str, Any] = json.loads(stored.metadata()["progress"])
    for name, parameter in model.named_parameters():
        parameter.data.copy_(tensors[f"model/{name}"])
    if not exact:
        return progress | {"resumed": progress["step"]}
    if optimiser is not None:
        _restore(optimiser, tensors)
    return progress


def _restore(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state of the optimiser; its names are adamw/index/name."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        if path.startswith(f"{_STATE}/"):
            _, index, name = path.split("/")
            state.setdefault(int(index), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})

"""Checkpoints of a training run: model, optimisers and progress go in, one safetensors file comes out, and back.

The file is written beside the old one and then takes its place, so an interrupted save loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NAME = "checkpoint.safetensors"


def save(folder: Path, model: nn.Module, optimisers: Mapping[str, Optimizer], progress: DataclassInstance) -> None:
    """Write everything a resumed run needs."""
    tensors = {f"model/{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for kind, optimiser in optimisers.items():
        for place, state in optimiser.state_dict()["state"].items():
            tensors |= {f"{kind}/{place}/{name}": value for name, value in state.items()}
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{NAME}.new"
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        beside,
        metadata={"progress": json.dumps(asdict(progress))},
    )
    beside.replace(folder / NAME)


def load(folder: Path, model: nn.Module, optimisers: Mapping[str, Optimizer]) -> dict[str, Any]:
    """Fill model and optimisers from the checkpoint, if there is one, and return its progress."""
    if not (folder / NAME).exists():
        return {}
    with safe_open(folder / NAME, framework="pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        progress: dict[str, Any] = json.loads(stored.metadata()["progress"])
    for name, parameter in model.named_parameters():
        parameter.data.copy_(tensors[f"model/{name}"])
    for kind, optimiser in optimisers.items():
        restore(optimiser, {name: tensor for name, tensor in tensors.items() if name.startswith(f"{kind}/")})
    return progress


def restore(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its state back; names are kind/place/name."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        _, place, name = path.split("/")
        state.setdefault(int(place), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})

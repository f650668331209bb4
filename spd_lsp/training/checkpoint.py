"""Checkpoints of a training run: model, optimisers and progress go in, two safetensors files come out, and back.

One is exact. The other is a fifth of its size, for another machine: weights of eight significant bits, which packs
well, and nothing of the optimisers, whose memory is some twenty steps long. A file is written beside the old one
and then takes its place, so an interrupted save loses nothing.
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
WEIGHTS_FILE = "weights.safetensors"  # gone on from where the exact one is missing


def save(folder: Path, model: nn.Module, optimisers: Mapping[str, Optimizer], progress: DataclassInstance) -> None:
    """Write everything a resumed run needs."""
    tensors = {f"model/{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for kind, optimiser in optimisers.items():
        for place, state in optimiser.state_dict()["state"].items():
            tensors |= {f"{kind}/{place}/{name}": value for name, value in state.items()}
    _write(folder / FULL_FILE, tensors, progress)
    weights = {name: round_weights(tensor) for name, tensor in tensors.items() if name.startswith("model/")}
    _write(folder / WEIGHTS_FILE, weights, progress)


def _write(path: Path, tensors: Mapping[str, Tensor], progress: DataclassInstance) -> None:
    """Put a file in its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        beside,
        metadata={"progress": json.dumps(asdict(progress))},
    )
    beside.replace(path)


def round_weights(tensor: Tensor) -> Tensor:
    """The nearest float16 with eight significant bits; the three bits that are then zero pack to nothing."""
    bits = tensor.half().view(torch.int16)
    return ((bits + 4) & -8).view(torch.float16)


def load(folder: Path, model: nn.Module, optimisers: Mapping[str, Optimizer]) -> dict[str, Any]:
    """Fill model and optimisers from the checkpoint, if there is one, and return its progress."""
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
    for kind, optimiser in optimisers.items():
        _restore(optimiser, {name: tensor for name, tensor in tensors.items() if name.startswith(f"{kind}/")})
    return progress


def read_progress(folder: Path) -> dict[str, Any]:
    """How far the checkpoint in a folder has come; without one, there is none."""
    return load(folder, nn.Module(), {})


def _restore(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its state back; names are kind/place/name."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        _, place, name = path.split("/")
        state.setdefault(int(place), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})

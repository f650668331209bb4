"""Save and load checkpoints of a training run: model, optimiser and progress, in one safetensors file.

A file is written beside the old one and then replaces it, so an interrupted save loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

_STATE = "adamw"  # the names of the optimiser's tensors begin with it


def save(path: Path, model: nn.Module, optimiser: Optimizer, facts: Mapping[str, Any]) -> None:
    """Write everything a resumed run needs."""
    tensors = {f"model/{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for index, values in optimiser.state_dict()["state"].items():
        tensors |= {f"{_STATE}/{index}/{name}": value for name, value in values.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, temporary, metadata={"facts": json.dumps(facts)})
    temporary.replace(path)


def load(path: Path, model: nn.Module, optimiser: Optimizer | None = None) -> dict[str, Any]:
    """Fill model and optimiser from the checkpoint, if there is one, and return its facts."""
    if not path.exists():
        return {}
    with safe_open(path, framework="pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        facts: dict[str, Any] = json.loads(stored.metadata()["facts"])
    for name, parameter in model.named_parameters():
        parameter.data.copy_(tensors[f"model/{name}"])
    if optimiser is not None:
        state: dict[int, dict[str, Tensor]] = {}
        for title, tensor in tensors.items():
            kind, index, name = title.split("/") if title.startswith(_STATE) else ("", "0", "")
            if kind:
                state.setdefault(int(index), {})[name] = tensor
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    return facts

"""A model's description without what would have transformers fetch code, run it or read files elsewhere.

Comes in: a folder. Goes out: the configuration that transformers makes of its `config.json`. What a description
may choose is the network's shape; how and by what it is computed is chosen here.
"""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.network import close_network

# Names of code in the folder or on a hub, of kernels, and of other files to read instead.
_CHOSEN_HERE = frozenset(
    {
        "auto_map",
        "commit_hash",
        "configuration_files",
        "custom_generate",
        "custom_pipelines",
        "extra_files",
        "fusion_config",
        "kernel_config",
        "name_or_path",
        "sub_configs",
        "transformers_weights",
        "trust_remote_code",
        "use_kernels",
    }
)


def read_config(folder: Path) -> Any:
    """The model's description; families that transformers does not know are refused.

    From here on the process stays off the network, whatever the network's parts would like to fetch.
    """
    close_network()
    _refuse_adapter(folder)
    path = folder / "config.json"
    with tempfile.TemporaryDirectory(prefix="spd-lsp-") as place:
        try:
            described = _shape_only(json.loads(path.read_bytes()))
            Path(place, path.name).write_text(json.dumps(described), encoding="utf-8")
            config: Any = AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # a bad file raises many kinds
            raise UserError(
                f"{path}: transformers cannot read it without running foreign code "
                f"({_first_line(error).replace(place, str(folder))}); choose a model of a family it knows"
            ) from error
    config.name_or_path = folder
    return config


def _refuse_adapter(folder: Path) -> None:
    """Raise if the folder holds an adapter that would be loaded over its weights, from wherever it says."""
    if (folder / "adapter_config.json").exists() and find_spec("peft"):
        raise UserError(
            f"expected whole weights in {folder}, found an adapter beside them (adapter_config.json); "
            "merge it into the weights, or move it away"
        )


def _shape_only(described: Any) -> Any:
    """The description, at any depth, without what is chosen here."""
    if isinstance(described, list):
        return [_shape_only(each) for each in described]
    if not isinstance(described, dict):
        return described
    return {name: _shape_only(value) for name, value in described.items() if not _chosen_here(name)}


def _chosen_here(name: str) -> bool:
    """Example: `auto_map` is, so is `_attn_implementation_internal`, in any spelling; `hidden_size` is not."""
    return name.lstrip("_") in _CHOSEN_HERE or "_implementation" in name


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

"""A model's config.json, without what would make transformers fetch code, run it or read files elsewhere.

The file may choose the network's shape; what computes it, and how, is chosen here.
"""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.download import close_network

# Names of code in the folder or on a hub, of kernels, and of other files to read instead.
_IGNORED = frozenset(
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
    """The configuration that transformers makes of a folder's config.json; unknown model families are refused.

    From here on this process stays offline, whatever parts of the network would like to fetch.
    """
    close_network()
    if (folder / "adapter_config.json").exists() and find_spec("peft"):
        raise UserError(
            f"{folder} has an adapter beside its weights (adapter_config.json), which could name any other model; "
            "merge it into the weights, or move it away"
        )
    path = folder / "config.json"
    with tempfile.TemporaryDirectory(prefix="spd-lsp-") as scratch:
        try:
            cleaned = _without_ignored(json.loads(path.read_bytes()))
            Path(scratch, path.name).write_text(json.dumps(cleaned), encoding="utf-8")
            config: Any = AutoConfig.from_pretrained(scratch, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # a bad file raises many kinds
            raise UserError(
                f"{path}: transformers cannot read it without running the model's own code "
                f"({first_line(error).replace(scratch, str(folder))}); choose a model of a family it knows"
            ) from error
    config.name_or_path = folder
    return config


def _without_ignored(config: Any) -> Any:
    """The configuration, at any depth, without what is chosen here."""
    if isinstance(config, list):
        return [_without_ignored(each) for each in config]
    if not isinstance(config, dict):
        return config
    return {name: _without_ignored(value) for name, value in config.items() if not _is_ignored(name)}


def _is_ignored(name: str) -> bool:
    """Example: `auto_map` is, so is `_attn_implementation_internal`, in any spelling; `hidden_size` is not."""
    return name.lstrip("_") in _IGNORED or "_implementation" in name


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

"""Which folder holds the model: the one in this package, a folder that is written as a path, or a Hugging Face id.

The only file that may reach the network, and only for an id that a person named and that is not stored yet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.network import opened_network
from spd_lsp.models.checkpoint.shards import demand_own_files
from spd_lsp.settings import HUGGING_FACE_ID, expand_home, is_path

STARTER = "starter"
_LARGEST = 128 << 20  # bytes of a description or tokenizer; that of 260,000 tokens has 35 MB
_WANTED = ["*.json", "*.safetensors"]  # weights without code: neither pickles nor modelling files are fetched


def locate(model: str, report: Callable[[str], None] = lambda text: None) -> Path:
    """The folder with this model's weights and tokenizer; an id is downloaded once. `report` hears of it."""
    try:
        return find(model, report)
    except OSError as error:
        raise UserError(
            f"expected the model {model} where it can be read, found: {error.strerror or error}; "
            "check the folder given to --model"
        ) from error


def lasting(model: str) -> str:
    """A model's name that means the same wherever it is used: folders in full."""
    return str(Path(expand_home(model)).resolve()) if is_path(model) else model


def find(model: str, report: Callable[[str], None]) -> Path:
    """As `locate`; OSError where a folder cannot be looked into."""
    if model == STARTER:
        return complete(Path(str(files("spd_lsp") / "starter")), model)
    if is_path(model):
        folder = Path(expand_home(model))
        if folder.is_dir():
            return complete(folder, model)
    elif HUGGING_FACE_ID.fullmatch(model):  # whatever folder of that name the working folder has
        return complete(download(model, report), model)
    raise UserError(
        f"expected a model's folder, a Hugging Face id such as Qwen/Qwen2.5-Coder-0.5B, or `starter`; "
        f"found no folder {model!r}; check the name given to --model, and write a folder as a path such as ./mine"
    )


def complete(folder: Path, model: str) -> Path:
    """The folder itself if it holds what a model needs."""
    for needed in ("config.json", "tokenizer.json"):
        if not (folder / needed).is_file():
            raise UserError(
                f"model {model}: expected {needed} in {folder}, found none; name the folder that holds "
                "config.json, tokenizer.json and *.safetensors"
            )
        if (size := (folder / needed).stat().st_size) > _LARGEST:
            raise UserError(
                f"model {model}: expected {needed} of at most {_LARGEST >> 20} MB, found {size >> 20} MB "
                f"in {folder}; restore the file"
            )
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"model {model}: expected weights as *.safetensors in {folder}, found none; pickled weights "
            "(*.bin, *.pt) are not opened; convert them with `save_pretrained(..., safe_serialization=True)`"
        )
    demand_own_files(folder)
    return folder


def download(model: str, report: Callable[[str], None]) -> Path:
    """The stored copy of a Hugging Face model, fetched if there is none yet."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        with opened_network():
            with suppress(LocalEntryNotFoundError):
                return Path(snapshot_download(model, allow_patterns=_WANTED, local_files_only=True))
            report(f"downloading {model}")
            return Path(snapshot_download(model, allow_patterns=_WANTED))
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"model {model} is not stored here and could not be downloaded ({reason}); "
            "check the id and the connection, or write a folder as a path such as ./mine"
        ) from error


def vocabulary(folder: Path) -> int | None:
    """How many token ids the model in a folder knows, None if its description does not say it plainly."""
    try:
        described = json.loads((folder / "config.json").read_bytes())
        known = described.get("vocab_size", (described.get("text_config") or {}).get("vocab_size"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return known if isinstance(known, int) else None


def built_in_domains(folder: Path) -> dict[str, Path]:
    """The n-gram tables that come with a model, by language: `python.ngt` beside the weights serves Python."""
    return {path.stem: path for path in sorted(folder.glob("*.ngt"))}

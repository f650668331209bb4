"""Where a model is: a GGUF file, such as the one in this package, or the folder of a Hugging Face model.

What a person named and is not stored yet is fetched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.extras import missing_for_models
from spd_lsp.models.checkpoint.download import fetch, list_files, models_folder
from spd_lsp.models.checkpoint.gguf_parts import find_models, find_parts
from spd_lsp.models.checkpoint.stored_models import find_ollama, is_quantization, stored_quantization
from spd_lsp.settings import HUGGING_FACE_ID, NO_MODEL, STORED_GGUF, expand_home, is_gguf, is_path, is_server

STARTER = "starter"
VOCABULARY = "tokenizer.json"  # beside the bundled model, for completions without a model
_SUFFIXES = (".json", ".safetensors")  # weights without code: neither pickles nor modelling files are fetched


def locate(model: str, report: Callable[[str], None] = lambda text: None) -> Path:
    """The GGUF file of this model, or its folder with weights and tokenizer; for no model, a `tokenizer.json`.

    An id is downloaded once, which is reported.
    """
    try:
        return _find(model, report)
    except OSError as error:
        raise UserError(
            f"cannot read the model {model}: {error.strerror or error}; check the folder given to --model"
        ) from error


def absolute_model_name(model: str) -> str:
    """A model's name that means the same in every working folder: paths are made absolute."""
    return str(Path(expand_home(model)).resolve()) if is_path(model) else model


def _find(model: str, report: Callable[[str], None]) -> Path:
    if model == NO_MODEL:
        return starter_folder() / VOCABULARY
    if model == STARTER or is_server(model):  # which the bundled model stands in for
        folder = starter_folder()
        if found := _gguf_in(folder):
            return found
        raise UserError(f"{folder} has no GGUF file, which the bundled model is; install spd-lsp again")
    if STORED_GGUF.fullmatch(model):
        program, _, name = model.partition(":")
        return _first_part(find_ollama(name) if program == "ollama" else _find_quantization(name, report))
    if is_path(model):
        path = Path(expand_home(model))
        if path.is_dir():
            return _gguf_in(path) or _complete(path, model)
        if is_gguf(model) and path.is_file():
            return _first_part(path)
    elif HUGGING_FACE_ID.fullmatch(model):  # even where the working folder has a folder of that name
        return _complete(_download(model, report), model)
    from spd_lsp.models.checkpoint.recommended import read_table

    if any(model == row.name for row in read_table()):
        raise UserError(
            f"{model!r} is short for a model; run: spd-lsp models get {model}, which prints its full name"
        )
    raise UserError(
        f"there is no model {model!r}; name a model's folder or a GGUF file as a path such as ./mine, a Hugging "
        "Face id such as Qwen/Qwen2.5-Coder-0.5B, ollama:NAME, hf:OWNER/NAME:QUANTIZATION, a server's "
        "http://HOST:PORT, or `starter` (`spd-lsp models` lists what is here)"
    )


def starter_folder() -> Path:
    """Where the bundled model lies: in this package or, in a release, beside it; or as `SPD_LSP_STARTER` says."""
    package = Path(str(files("spd_lsp")))
    bundled = package / "starter"
    beside = package.with_name("spd_lsp_starter")  # of a wheel of its own: .ci/split_wheel.py
    return Path(os.environ.get("SPD_LSP_STARTER") or (bundled if bundled.is_dir() else beside))


def is_gguf_model(place: Path) -> bool:
    """Whether `locate` found a GGUF file; those of Ollama have no suffix."""
    return place.name != VOCABULARY and not place.is_dir()


def companion_folder(place: Path) -> Path:
    """Where the files that come with a model lie: beside its GGUF file, or in its folder."""
    return place if place.is_dir() else place.parent


def _gguf_in(folder: Path) -> Path | None:
    """The model in a folder that holds GGUF files and no other model; `UserError` if there are several."""
    models = [] if (folder / "config.json").is_file() else find_models(folder)
    if len(models) > 1:
        raise UserError(f"{folder} holds {len(models)} GGUF models; name one of them, such as {models[0]}")
    return _first_part(models[0]) if models else None


def _first_part(path: Path) -> Path:
    """The full path of the file by which llama.cpp opens a model."""
    return find_parts(path.parent.resolve() / path.name)[0]


def _complete(folder: Path, model: str) -> Path:
    """The folder itself if it holds what a model needs, and nothing that would be opened in its place."""
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise UserError(
                f"model {model}: {folder} has no {name}; name the folder that holds config.json, tokenizer.json "
                "and *.safetensors"
            )
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"model {model}: {folder} has no *.safetensors; pickled weights (*.bin, *.pt) are not opened, "
            "convert them with `save_pretrained(..., safe_serialization=True)`"
        )
    if (folder / "adapter_config.json").exists():
        raise UserError(
            f"model {model}: {folder} has an adapter beside its weights (adapter_config.json), which could name "
            "any other model; merge it into the weights, or move it away"
        )
    return folder


def _find_quantization(name: str, report: Callable[[str], None]) -> Path:
    """The GGUF file for `owner/repository:quantization`, or its first part, fetched if it is not stored yet."""
    repository, _, quantization = name.partition(":")
    if stored := stored_quantization(repository, quantization):
        return stored
    names = [name for name in list_files(repository) if is_quantization(name, quantization)]
    if not names:
        raise UserError(
            f"{repository} has no file that ends in {quantization}.gguf; look at its files on Hugging Face"
        )
    return fetch(repository, names, report) / names[0]


def _download(model: str, report: Callable[[str], None]) -> Path:
    """The stored copy of a Hugging Face model, fetched if there is none yet."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with suppress(LocalEntryNotFoundError, ValueError):  # an invalid id is reported below
        patterns = [f"*{suffix}" for suffix in _SUFFIXES]
        return Path(snapshot_download(model, allow_patterns=patterns, local_files_only=True))
    with suppress(UserError):
        return _complete(models_folder() / model, model)
    if missing := missing_for_models():  # before gigabytes are fetched that could not be opened
        raise UserError(f"model {model} {missing}")
    # The tokenizer comes last: a folder without it is not complete.
    names = sorted(list_files(model), key=lambda name: name == "tokenizer.json")
    return fetch(model, [name for name in names if name.endswith(_SUFFIXES) and "/" not in name], report)


def _read_json(path: Path) -> Any:
    """What a file says; an empty object if it is missing or damaged, which those report who open the model."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}


def known_languages(place: Path) -> frozenset[str] | None:
    """The languages of the code a model was trained on, as its training.json says; None: it may know any."""
    try:
        sources = _read_json(companion_folder(place) / "training.json")["sources"]
        return frozenset(str(source["language"]) for source in sources if not source.get("skipped")) or None
    except (LookupError, TypeError, AttributeError):
        return None


def shipped_settings(model: str, place: Path) -> dict[str, int]:
    """The settings that the bundled model was made for, as its training.json says: how much of a file it reads."""
    trained = _read_json(companion_folder(place) / "training.json").get("settings") if model == STARTER else None
    return {"context_tokens": trained["context_tokens"]} if trained else {}

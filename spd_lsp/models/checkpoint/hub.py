"""Which folder holds the model: the one in this package, one written as a path, or that of a GGUF file or an id.

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
from spd_lsp.models.checkpoint.gguf_parts import find_in_folder
from spd_lsp.models.checkpoint.stored_models import find_ollama, is_quantization, stored_quantization
from spd_lsp.models.checkpoint.weight_files import check_index
from spd_lsp.settings import HUGGING_FACE_ID, NO_MODEL, STORED_GGUF, expand_home, is_gguf, is_path, is_server

STARTER = "starter"
_MAX_FILE_BYTES = 128 << 20  # of a configuration or tokenizer; a tokenizer of 260,000 tokens has 35 MB
_SUFFIXES = (".json", ".safetensors")  # weights without code: neither pickles nor modelling files are fetched


def locate(model: str, report: Callable[[str], None] = lambda text: None) -> Path:
    """The folder with this model's weights and tokenizer; an id is downloaded once, which is reported."""
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
    from spd_lsp.models.llama.prepared import prepare, prepare_vocabulary  # needs NumPy, and `--help` does not

    if model == NO_MODEL:
        return prepare_vocabulary(starter_file(), report)
    if model == STARTER or is_server(model):  # which the bundled model stands in for
        return prepare(starter_file(), STARTER, report)
    if STORED_GGUF.fullmatch(model):
        program, _, name = model.partition(":")
        path = find_ollama(name) if program == "ollama" else _find_quantization(name, report)
        return prepare(path, model, report)
    if is_path(model):
        path = Path(expand_home(model))
        if path.is_dir():
            gguf = find_in_folder(path)
            return prepare(gguf, gguf.name, report) if gguf else _complete(path, model)
        if is_gguf(model) and path.is_file():
            return prepare(path, path.name, report)
    elif HUGGING_FACE_ID.fullmatch(model):  # even where the working folder has a folder of that name
        return _complete(_download(model, report), model)
    raise UserError(
        f"there is no model {model!r}; --model takes a model's folder or a GGUF file, written as a path such as "
        "./mine, a Hugging Face id such as Qwen/Qwen2.5-Coder-0.5B, a server's http://HOST:PORT, or `starter`"
    )


def starter_file() -> Path:
    """The GGUF file in this package, or in the folder that `SPD_LSP_STARTER` names."""
    folder = Path(os.environ.get("SPD_LSP_STARTER") or str(files("spd_lsp") / "starter"))
    if found := find_in_folder(folder):
        return found
    raise UserError(f"{folder} has no GGUF file, which the bundled model is; install spd-lsp again")


def companion_folder(folder: Path) -> Path:
    """Where the files that come with a model lie: beside its GGUF file, if the folder stands for one."""
    from spd_lsp.models.llama.prepared import read_source

    source = read_source(folder)
    return Path(source.path).parent if source else folder


def _complete(folder: Path, model: str) -> Path:
    """The folder itself if it holds what a model needs."""
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise UserError(
                f"model {model}: {folder} has no {name}; name the folder that holds config.json, tokenizer.json "
                "and *.safetensors"
            )
        if (size := (folder / name).stat().st_size) > _MAX_FILE_BYTES:
            raise UserError(
                f"model {model}: {name} in {folder} has {size >> 20} MB, more than the limit of "
                f"{_MAX_FILE_BYTES >> 20} MB; restore the file"
            )
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"model {model}: {folder} has no *.safetensors; pickled weights (*.bin, *.pt) are not opened, "
            "convert them with `save_pretrained(..., safe_serialization=True)`"
        )
    check_index(folder)
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
    return _fetch(repository, names, f"hf:{name}", report) / names[0]


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
    names = [name for name in list_files(model) if name.endswith(_SUFFIXES) and "/" not in name]
    return _fetch(model, names, model, report)


def _fetch(repository: str, names: list[str], name: str, report: Callable[[str], None]) -> Path:
    """The folder with some files of a repository, with progress."""
    report(f"downloading {name}")
    return fetch(repository, names, lambda done, total: report(f"downloading {name}: {done / max(total, 1):.0%}"))


def vocabulary(folder: Path) -> int | None:
    """How many token ids the model in a folder knows, None if its config.json does not say it plainly."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        size = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return size if isinstance(size, int) else None


def known_languages(folder: Path) -> frozenset[str] | None:
    """The languages of the code a model was trained on, as its training.json says; None: it may know any."""
    try:
        sources = _training(folder)["sources"]
        return frozenset(str(source["language"]) for source in sources if not source.get("skipped")) or None
    except (LookupError, TypeError, AttributeError):
        return None


def shipped_settings(model: str, folder: Path) -> dict[str, int]:
    """The settings that the bundled model was made for, as its training.json says: how much of a file it reads."""
    trained = _training(folder).get("settings") if model == STARTER else None
    return {"context_tokens": trained["context_tokens"]} if trained else {}


def _training(folder: Path) -> Any:
    """What the training.json beside a model says; nothing where there is none."""
    try:
        return json.loads((companion_folder(folder) / "training.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}


def bundled_tables(model: str, folder: Path) -> dict[str, Path]:
    """The built-in n-gram tables, for the bundled model or none at all."""
    return built_in_tables(folder) if model in (STARTER, NO_MODEL) else {}


def built_in_tables(folder: Path) -> dict[str, Path]:
    """The n-gram tables that come with a model, by language: `python.ngt` beside the weights is about Python."""
    return {path.stem: path for path in sorted(companion_folder(folder).glob("*.ngt"))}

"""Where a model is: a GGUF file, such as the bundled one, or the folder of a Hugging Face model.

Models that a person named and that are not stored yet are fetched from Hugging Face, or from the mirror that
HF_ENDPOINT names. No other file reaches the network. Fetched files lie in a folder of their own rather than in the
library's cache, where headers of a mirror would name files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.extras import missing_for_models
from spd_lsp.models.stored import (
    find_models,
    find_ollama,
    find_parts,
    is_quantization,
    models_folder,
    stored_quantization,
)
from spd_lsp.settings import HUGGING_FACE_ID, NO_MODEL, STORED_GGUF, expand_home, is_gguf, is_path, is_server

STARTER = "starter"
VOCABULARY = "tokenizer.json"  # beside the bundled model, for completions without a model
_SUFFIXES = (".json", ".safetensors")  # weights without code: neither pickles nor modelling files are fetched


def locate(model: str, report: Callable[[str], None] = lambda text: None) -> Path:
    """Return the GGUF file of a model, or its folder with weights and tokenizer; for no model, a `tokenizer.json`.

    A Hugging Face id is downloaded once; `report` takes the progress.
    """
    if model == NO_MODEL:
        return starter_folder() / VOCABULARY
    if model == STARTER or is_server(model):  # the bundled model stands in for a server
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
    raise UserError(
        f"there is no model {model!r}; name a model's folder or a GGUF file as a path such as ./mine, a Hugging "
        "Face id such as Qwen/Qwen2.5-Coder-0.5B, ollama:NAME, hf:OWNER/NAME:QUANTIZATION, a server's "
        "http://HOST:PORT, or `starter` (`spd-lsp models` lists what is here; `spd-lsp models get NAME` downloads)"
    )


def absolute_model_name(model: str) -> str:
    """Return a model's name that means the same in every working folder: paths are made absolute."""
    return str(Path(expand_home(model)).resolve()) if is_path(model) else model


def starter_folder() -> Path:
    """Return the bundled model's folder: in this package or, in a release, beside it; or `SPD_LSP_STARTER`."""
    package = Path(str(files("spd_lsp")))
    bundled = package / "starter"
    beside = package.with_name("spd_lsp_starter")  # of a wheel of its own: .ci/split_wheel.py
    return Path(os.environ.get("SPD_LSP_STARTER") or (bundled if bundled.is_dir() else beside))


def is_gguf_model(place: Path) -> bool:
    """Whether `locate` found a GGUF file; those of Ollama have no suffix."""
    return place.name != VOCABULARY and not place.is_dir()


def known_languages(place: Path) -> frozenset[str] | None:
    """Return the languages of the code that the bundled model was trained on; None: a model may know any."""
    sources = _training(place).get("sources", ())
    return frozenset(source["language"] for source in sources if not source.get("skipped")) or None


def shipped_settings(model: str, place: Path) -> dict[str, int]:
    """Return the settings that the bundled model was made for: how much of a file it reads."""
    trained = _training(place).get("settings") if model == STARTER else None
    return {"context_tokens": trained["context_tokens"]} if trained else {}


def _training(place: Path) -> dict[str, Any]:
    """Return the training.json of the bundled model; an empty object for other models."""
    file = place.parent / "training.json"
    found: dict[str, Any] = {}
    if place.parent == starter_folder() and file.is_file():
        found = json.loads(file.read_bytes())
    return found


def _gguf_in(folder: Path) -> Path | None:
    """Return the model in a folder that holds GGUF files and no other model; `UserError` if there are several."""
    models = [] if (folder / "config.json").is_file() else find_models(folder)
    if len(models) > 1:
        raise UserError(f"{folder} holds {len(models)} GGUF models; name one of them, such as {models[0]}")
    return _first_part(models[0]) if models else None


def _first_part(path: Path) -> Path:
    """Return the full path of the file by which llama.cpp opens a model."""
    return find_parts(path.parent.resolve() / path.name)[0]


def _complete(folder: Path, model: str) -> Path:
    """Return the folder itself if it holds the files of a model; `UserError` if not."""
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
    return folder


def _find_quantization(name: str, report: Callable[[str], None]) -> Path:
    """Return the GGUF file of `owner/repository:quantization`, or its first part; fetch it if it is not stored."""
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
    """Return the stored copy of a Hugging Face model; fetch it if there is none yet."""
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


def list_files(repository: str) -> list[str]:
    """Return the names of a repository's files."""
    with _asking(repository):
        from huggingface_hub import HfApi

        return sorted(file.rfilename for file in HfApi().model_info(repository).siblings or ())


def fetch(repository: str, names: Sequence[str], report: Callable[[str], None], sha256: str = "") -> Path:
    """Return the folder that holds these files of a repository, once all of them are there.

    `report` takes a text such as `downloading model.gguf: 40%`. sha256: that each file must have, if it is known.
    """
    folder = models_folder() / repository
    with _asking(repository):
        from huggingface_hub import hf_hub_download

        for name in names:
            stage = f"downloading {name.rpartition('/')[2]}"
            report(f"{stage}: 0%")
            bar: Any = _bar(lambda share, stage=stage: report(f"{stage}: {share:.0%}"))  # type: ignore[misc]
            path = Path(hf_hub_download(repository, name, local_dir=folder, tqdm_class=bar))
            if not sha256:
                continue
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != sha256:
                path.unlink()
                raise UserError(
                    f"{name} of {repository} is not the file that was expected: its SHA-256 is {found[:16]}..., "
                    f"not {sha256[:16]}...; nothing was kept: try again, or another mirror (HF_ENDPOINT)"
                )
    return folder


def _bar(report: Callable[[float], None]) -> type[Any]:
    """Return a class of progress bars for Hugging Face's library; `report` takes the share of the bytes."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class ProgressBar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            options.pop("name", None)
            options |= {"file": io.StringIO(), "mininterval": 0.5, "disable": False}
            super().__init__(*arguments, **options)

        def display(self, *arguments: Any, **options: Any) -> None:
            """Report the share; `update` calls this twice a second at most."""
            report(self.n / max(self.total or 0, self.n, 1))

    return ProgressBar


@contextmanager
def _asking(repository: str) -> Iterator[None]:
    """Ask Hugging Face within; turn its errors into a `UserError` of one sentence."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub.errors import HfHubHTTPError

    failures: Any = HfHubHTTPError.__bases__  # OSError, and that of the HTTP library beneath
    try:
        yield
    except (*failures, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"model {repository} is not stored here and could not be downloaded ({reason}); check the id and the "
            "connection, or write a folder as a path such as ./mine"
        ) from error


@contextmanager
def offline() -> Iterator[None]:
    """Keep Hugging Face's library from fetching anything within."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before

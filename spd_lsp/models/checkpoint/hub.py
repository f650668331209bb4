"""Which folder holds the model: the one in this package, one written as a path, or that of a GGUF file or an id.

The only file that may reach the network, and only for an id that a person named and that is not stored yet. All
that goes through Hugging Face's library, transformers and the kernels it might load included, obeys one switch.
"""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.extras import missing_for_models
from spd_lsp.models.checkpoint.gguf_parts import find_in_folder
from spd_lsp.models.checkpoint.stored_models import find_ollama, is_quantization, stored_quantization
from spd_lsp.models.checkpoint.weight_files import check_index
from spd_lsp.settings import HUGGING_FACE_ID, NO_MODEL, STORED_GGUF, expand_home, is_gguf, is_path

STARTER = "starter"
_MAX_FILE_BYTES = 128 << 20  # of a configuration or tokenizer; a tokenizer of 260,000 tokens has 35 MB
_PATTERNS = ["*.json", "*.safetensors"]  # weights without code: neither pickles nor modelling files are fetched
_lock = threading.RLock()
_closed_here = False  # a person's HF_HUB_OFFLINE is never overruled


def locate(model: str, report: Callable[[str], None] = lambda text: None) -> Path:
    """The folder with this model's weights and tokenizer; an id is downloaded once, which is reported."""
    try:
        return _find(model, report)
    except OSError as error:
        raise UserError(
            f"cannot read the model {model}: {error.strerror or error}; check the folder given to --model"
        ) from error


def lasting(model: str) -> str:
    """A model's name that means the same in every working folder: paths are made absolute."""
    return str(Path(expand_home(model)).resolve()) if is_path(model) else model


def _find(model: str, report: Callable[[str], None]) -> Path:
    if model == NO_MODEL:
        return _prepare_vocabulary(_starter_file(), report)
    if model == STARTER:
        return _prepare_gguf(_starter_file(), model, report)
    if STORED_GGUF.fullmatch(model):
        program, _, name = model.partition(":")
        path = find_ollama(name) if program == "ollama" else _find_quantization(name, report)
        return _prepare_gguf(path, model, report)
    if is_path(model):
        path = Path(expand_home(model))
        if path.is_dir():
            gguf = find_in_folder(path)
            return _prepare_gguf(gguf, gguf.name, report) if gguf else _complete(path, model)
        if is_gguf(model) and path.is_file():
            return _prepare_gguf(path, path.name, report)
    elif HUGGING_FACE_ID.fullmatch(model):  # even where the working folder has a folder of that name
        return _complete(_download(model, report), model)
    raise UserError(
        f"there is no model {model!r}; --model takes a model's folder or a GGUF file, written as a path such as "
        "./mine, a Hugging Face id such as Qwen/Qwen2.5-Coder-0.5B, or `starter`"
    )


def _starter_file() -> Path:
    """The GGUF file in this package, or in the folder that `SPD_LSP_STARTER` names."""
    folder = Path(os.environ.get("SPD_LSP_STARTER") or str(files("spd_lsp") / "starter"))
    if found := find_in_folder(folder):
        return found
    raise UserError(f"{folder} has no GGUF file, which the bundled model is; install spd-lsp again")


def _prepare_vocabulary(path: Path, report: Callable[[str], None]) -> Path:
    """The folder that stands for a file's vocabulary. Imported late as well."""
    from spd_lsp.models.llama.prepared import prepare_vocabulary

    return prepare_vocabulary(path, report)


def beside(folder: Path) -> Path:
    """Where the files that come with a model lie: beside its GGUF file, if the folder stands for one."""
    from spd_lsp.models.llama.prepared import read_source

    source = read_source(folder)
    return Path(source.path).parent if source else folder


def _prepare_gguf(path: Path, name: str, report: Callable[[str], None]) -> Path:
    """The folder that stands for a GGUF file. Imported late, as it needs NumPy, and `--help` does not."""
    from spd_lsp.models.llama.prepared import prepare

    return prepare(path, name, report)


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
    for path in folder.iterdir():
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would be read for ever
            raise UserError(
                f"model {model}: expected files in {folder}, found {path.name}, which is none; delete it"
            )
    return folder


def _find_quantization(name: str, report: Callable[[str], None]) -> Path:
    """The GGUF file for `owner/repository:quantization`, or its first part, fetched if it is not stored yet."""
    repository, _, quantization = name.partition(":")
    if stored := stored_quantization(repository, quantization):
        return stored
    endings = {quantization, quantization.lower(), quantization.upper()}
    patterns = [f"*{ending}{parts}.gguf" for ending in endings for parts in ("", "-*-of-*")]
    folder = _fetch(repository, f"hf:{name}", patterns, report)
    if found := [path for path in sorted(folder.rglob("*.gguf")) if is_quantization(path.name, quantization)]:
        return found[0]
    raise UserError(
        f"{repository} has no file that ends in {quantization}.gguf; look at its files on Hugging Face"
    )


def _download(model: str, report: Callable[[str], None]) -> Path:
    """The stored copy of a Hugging Face model, fetched if there is none yet."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with suppress(LocalEntryNotFoundError, ValueError):  # an invalid id is reported below
        return Path(snapshot_download(model, allow_patterns=_PATTERNS, local_files_only=True))
    if missing := missing_for_models():  # before gigabytes are fetched that could not be opened
        raise UserError(f"model {model} {missing}")
    return _fetch(model, model, _PATTERNS, report)


def _fetch(repository: str, name: str, patterns: list[str], report: Callable[[str], None]) -> Path:
    """Download some files of a repository, with progress."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    report(f"downloading {name}")
    bar = _progress_bar(lambda share: report(f"downloading {name}: {share:.0%}"))
    try:
        with _network_open():
            return Path(snapshot_download(repository, allow_patterns=patterns, tqdm_class=bar))
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"model {name} is not stored here and could not be downloaded ({reason}); "
            "check the id and the connection, or write a folder as a path such as ./mine"
        ) from error


def _progress_bar(report: Callable[[float], None]) -> type[Any]:
    """A class for Hugging Face's library, which makes one such bar for the bytes and others we do not show."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class ProgressBar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "file": io.StringIO(), "mininterval": 0.5})

        def display(self, *arguments: Any, **options: Any) -> None:
            """Called by `update`, but not more often than twice a second."""
            if self.unit == "B" and self.total:
                report(min(1.0, self.n / self.total))

    return ProgressBar


def close_network() -> None:
    """Let Hugging Face's library fetch nothing from now on."""
    global _closed_here
    from huggingface_hub import constants

    with _lock:
        _closed_here = _closed_here or not constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = True


@contextmanager
def _network_open() -> Iterator[None]:
    """Let it fetch meanwhile, in one thread at a time."""
    from huggingface_hub import constants

    with _lock:
        before = constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = before and not _closed_here
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = before


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
        sources = json.loads((beside(folder) / "training.json").read_bytes())["sources"]
        return frozenset(str(source["language"]) for source in sources if not source.get("skipped")) or None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def bundled_domains(model: str, folder: Path) -> dict[str, Path]:
    """The built-in n-gram tables, for the bundled model or none at all."""
    return built_in_domains(folder) if model in (STARTER, NO_MODEL) else {}


def built_in_domains(folder: Path) -> dict[str, Path]:
    """The n-gram tables that come with a model, by language: `python.ngt` beside the weights is about Python."""
    return {path.stem: path for path in sorted(beside(folder).glob("*.ngt"))}

"""Models on this machine: those fetched, and those of Ollama, LM Studio, llama.cpp and Hugging Face's library.

Nothing is fetched, and nothing outside their folders is named: what they hold is data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.download import models_folder
from spd_lsp.models.checkpoint.gguf_parts import find_parts, is_model_file, whole_name
from spd_lsp.models.checkpoint.weight_files import tensor_sizes

_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_WEIGHTS = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_MODELS = 1000  # of each program
_QUANTIZATION = re.compile(r"(?:^|[-._])([A-Za-z]+\d*(?:_[A-Za-z0-9]+)*)\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model on this machine."""

    name: str  # as `--model` takes it
    path: Path  # of the file or folder
    size: int  # of the weights on disk, in bytes

    @property
    def is_gguf(self) -> bool:
        """Whether llama.cpp runs it."""
        return self.path.is_file()


def find_ollama(name: str) -> Path:
    """The file that Ollama keeps for a model. Example: `qwen2.5-coder:1.5b`."""
    path, _, tag = name.partition(":")
    parts = path.split("/")
    host = [] if len(parts) > 2 else [_HOST] if len(parts) == 2 else [_HOST, _NAMESPACE]
    place = [*host, *parts, tag or _TAG]
    if not any(part in ("", ".", "..") for part in place):
        for folder in _ollama_folders():
            if (weights := _weights_of(folder, folder.joinpath("manifests", *place))) is not None:
                return weights
    raise UserError(
        f"Ollama has no model {name!r} in {' or '.join(map(str, _ollama_folders()))}; run: ollama pull {name}, or "
        "set OLLAMA_MODELS to its folder"
    )


def list_models() -> list[StoredModel]:
    """All models found, by name."""
    sources: tuple[Callable[[], Iterator[StoredModel]], ...] = (_in_repositories, _in_ollama, _in_folders)
    return [model for source in sources for model in sorted(source(), key=lambda model: model.name)]


def searched_folders() -> list[Path]:
    """Where models are looked for."""
    return [models_folder(), *_ollama_folders(), *_gguf_folders(), _hugging_face_cache()]


def stored_quantization(repository: str, quantization: str) -> Path | None:
    """The GGUF file of a Hugging Face repository, or its first part, if it is stored already."""
    cached = _hugging_face_cache() / f"models--{repository.replace('/', '--')}"
    files = [*_gguf_files(models_folder() / repository), *_gguf_files(cached)]
    return next((path for path in files if is_quantization(path.name, quantization)), None)


def repository_file_name(repository: str, path: Path) -> str:
    """The name that `--model` takes for a GGUF file of a Hugging Face repository."""
    quantization = _QUANTIZATION.search(whole_name(path.name))
    return f"hf:{repository}:{quantization[1]}" if quantization else str(path)


def is_quantization(file: str, quantization: str) -> bool:
    """Whether a model's name ends in a quantization. Example: `m-Q4_K_M.gguf` does in `q4_k_m`, not in `K_M`."""
    ending = rf"(?:^|[-./]){re.escape(quantization)}\.gguf$"
    return re.search(ending, whole_name(file), re.IGNORECASE) is not None


def _hugging_face_cache() -> Path:
    """Where Hugging Face's library keeps what it downloaded."""
    home = os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser()
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def _ollama_folders() -> list[Path]:
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return [Path(chosen).expanduser()]
    return [Path("~/.ollama/models").expanduser(), Path("/usr/share/ollama/.ollama/models")]


def _weights_of(folder: Path, manifest: Path) -> Path | None:
    """The file with the weights that a manifest names by their digest."""
    try:
        if not manifest.is_file() or manifest.stat().st_size > _MAX_MANIFEST_BYTES:
            return None
        layers = json.loads(manifest.read_bytes())["layers"]
        digests = [str(layer["digest"]) for layer in layers if layer["mediaType"] == _WEIGHTS]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    named = [found[1] for digest in digests if (found := _DIGEST.fullmatch(digest))]
    path = folder / "blobs" / f"sha256-{named[0]}" if named else None
    return path if path is not None and path.is_file() else None


def _in_ollama() -> Iterator[StoredModel]:
    for folder in _ollama_folders():
        for manifest in _some(folder / "manifests", "*/*/*/*"):
            if path := _weights_of(folder, manifest):
                host, namespace, name, tag = manifest.parts[-4:]
                own = {_HOST: name if namespace == _NAMESPACE else f"{namespace}/{name}"}
                short = own.get(host, f"{host}/{namespace}/{name}")
                yield _gguf(f"ollama:{short}:{tag}", path)


def _gguf_folders() -> list[Path]:
    """Where LM Studio and llama.cpp keep files."""
    own = os.environ.get("LLAMA_CACHE") or "~/.cache/llama.cpp"
    return [Path(each).expanduser() for each in ("~/.lmstudio/models", "~/.cache/lm-studio/models", own)]


def _in_folders() -> Iterator[StoredModel]:
    for folder in _gguf_folders():
        for path in _gguf_files(folder):
            yield _gguf(str(path), path)


def _in_repositories() -> Iterator[StoredModel]:
    """Those of Hugging Face, fetched here or by its own library."""
    for folder in _some(models_folder(), "*/*"):
        yield from _of_repository(f"{folder.parent.name}/{folder.name}", folder, [folder])
    for folder in _some(_hugging_face_cache(), "models--*--*"):
        owner, _, name = folder.name.removeprefix("models--").partition("--")
        yield from _of_repository(f"{owner}/{name}", folder, _some(folder, "snapshots/*"))


def _of_repository(repository: str, folder: Path, snapshots: list[Path]) -> Iterator[StoredModel]:
    for path in _gguf_files(folder):
        yield _gguf(repository_file_name(repository, path), path)
    whole = next((snapshot for snapshot in snapshots if (snapshot / "config.json").is_file()), None)
    if whole and any(tensor_sizes(whole)):
        size = sum(path.stat().st_size for path in whole.glob("*.safetensors"))
        yield StoredModel(repository, whole, size)


def _gguf(name: str, path: Path) -> StoredModel:
    return StoredModel(name, path, sum(part.stat().st_size for part in find_parts(path)))


def _gguf_files(folder: Path) -> list[Path]:
    """The whole models in a folder, each by its first part; links lead into Hugging Face's store."""
    return [path for path in _some(folder, "**/*") if is_model_file(path.name) and _is_whole(path)]


def _is_whole(path: Path) -> bool:
    """Whether a model's file is there, and all of its parts."""
    with suppress(UserError):
        return all(part.is_file() for part in find_parts(path))
    return False


def _some(folder: Path, pattern: str) -> list[Path]:
    """What matches in a folder, in order; none if it cannot be read."""
    try:
        return sorted(folder.glob(pattern))[:_MAX_MODELS]
    except OSError:
        return []

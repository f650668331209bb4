"""Fetches the files of a model from Hugging Face, or from the mirror that HF_ENDPOINT names.

The only file that may reach the network, and only for a model that a person named and that is not stored yet.
Files lie in a folder of ours rather than in the library's cache, where a mirror's headers would name files.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from ngram_builders.errors import UserError


def models_folder() -> Path:
    """Where fetched models are kept, as OWNER/NAME/FILE."""
    return platformdirs.user_cache_path("spd-lsp", appauthor=False) / "models"


def list_files(repository: str) -> list[str]:
    """The names of a repository's files."""
    with _asking(repository):
        from huggingface_hub import HfApi

        return sorted(file.rfilename for file in HfApi().model_info(repository).siblings or ())


def fetch(repository: str, names: Sequence[str], report: Callable[[str], None], sha256: str = "") -> Path:
    """The folder that holds these files of a repository, once all of them are there.

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
            if sha256 and (found := _sha256(path)) != sha256:
                path.unlink()
                raise UserError(
                    f"{name} of {repository} is not the file that was expected: its SHA-256 is {found[:16]}..., "
                    f"not {sha256[:16]}...; nothing was kept: try again, or another mirror (HF_ENDPOINT)"
                )
    return folder


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _bar(report: Callable[[float], None]) -> type[Any]:
    """A class for Hugging Face's library, which makes a bar of the bytes; `report` takes the share of them."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class ProgressBar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            options.pop("name", None)
            options |= {"file": io.StringIO(), "mininterval": 0.5, "disable": False}
            super().__init__(*arguments, **options)

        def display(self, *arguments: Any, **options: Any) -> None:
            """Called by `update`, but not more often than twice a second."""
            report(self.n / max(self.total or 0, self.n, 1))

    return ProgressBar


@contextmanager
def _asking(repository: str) -> Iterator[None]:
    """Ask the server within; what goes wrong is said in one sentence."""
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
    """Let Hugging Face's library fetch nothing within, whoever asks it to."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before

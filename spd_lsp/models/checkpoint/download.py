"""Fetches the files of a model from Hugging Face, or from the mirror that HF_ENDPOINT names.

The only file that may reach the network, and only for a model that a person named and that is not stored yet. All
that goes through Hugging Face's library, transformers and the kernels it might load included, obeys one switch.
What was fetched so far stays, and is resumed; a file counts once its digest is the one that the server names.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from ngram_builders.errors import UserError
from spd_lsp.output.progress import format_bytes

_SHA256, _GIT_SHA1 = 64, 40  # hexadecimal digits: of large files, and of those that Git keeps
_lock = threading.RLock()
_closed_here = False  # a person's HF_HUB_OFFLINE is never overruled

Report = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    """A file of a repository, as the server describes it."""

    name: str
    url: str  # of just this version
    size: int
    digest: str


def models_folder() -> Path:
    """Where fetched models are kept, as OWNER/NAME/FILE."""
    return platformdirs.user_cache_path("spd-lsp", appauthor=False) / "models"


def list_files(repository: str) -> list[str]:
    """The names of a repository's files."""
    with _asking(repository):
        from huggingface_hub import HfApi

        return sorted(file.rfilename for file in HfApi().model_info(repository).siblings or ())


def fetch(repository: str, names: Sequence[str], report: Report, sha256: str = "") -> Path:
    """The folder that holds these files of a repository, once all of them are there and checked.

    sha256: that a single file must have, whatever the server says.
    """
    folder = models_folder() / repository
    missing = [name for name in names if not (folder / _checked(name)).is_file()]
    with _asking(repository):
        files = [_describe(repository, name) for name in missing]
        total = sum(file.size for file in files)
        _check_room(total - sum(_part(folder, file)[1] for file in files))
        done = 0
        for file in files:
            if sha256 and file.digest != sha256:
                raise _wrong_digest(repository, file, sha256, file.digest)
            _fetch_file(repository, file, folder, partial(_report_more, report, done, total))
            done += file.size
    return folder


def _report_more(report: Report, before: int, total: int, more: int) -> None:
    report(before + more, total)


def _checked(name: str) -> str:
    """A file's name that leads nowhere else, whatever the server lists."""
    if not re.fullmatch(r"\w[\w.-]*(?:/\w[\w.-]*)*", name):
        raise UserError(f"expected the name of a file in a repository, found {name!r}")
    return name


def _describe(repository: str, name: str) -> _RemoteFile:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    about = get_hf_file_metadata(hf_hub_url(repository, name))
    digest = (about.etag or "").lower()
    if about.size is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digest):
        raise UserError(
            f"the server gives no size and digest for {name} in {repository}, without which the file cannot be "
            "verified; use another mirror (HF_ENDPOINT), or name a GGUF file that you have by its full path"
        )
    return _RemoteFile(name, hf_hub_url(repository, name, revision=about.commit_hash), about.size, digest)


def _part(folder: Path, file: _RemoteFile) -> tuple[Path, int]:
    """Where the unfinished file is, and how much of it there is; another version has another name."""
    path = folder / f"{file.name}.{file.digest[:12]}.part"
    size = path.stat().st_size if path.is_file() else 0
    if size > file.size:
        path.unlink()
    return path, size if size <= file.size else 0


def _fetch_file(repository: str, file: _RemoteFile, folder: Path, report: Callable[[int], None]) -> None:
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    path = folder / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if path.is_file():  # another process has fetched it meanwhile
            return
        part, begun = _part(folder, file)
        report(begun)
        with _Bounded(part, file) as target:
            options: dict[str, Any] = {"headers": build_hf_headers(), "tqdm_class": _bar(report)}
            http_get(file.url, target, resume_size=begun, expected_size=file.size, **options)
        if (found := _digest(part, file)) != file.digest:
            part.unlink()
            raise _wrong_digest(repository, file, file.digest, found)
        part.replace(path)


class _Bounded(io.BufferedWriter):
    """The unfinished file, of which no more is written than the server said that there is."""

    def __init__(self, path: Path, file: _RemoteFile) -> None:
        super().__init__(io.FileIO(path, "a"))
        self._path, self._file = path, file

    def write(self, data: Any) -> int:
        """See io; what is too long is of no use."""
        if self.tell() + len(data) > self._file.size:
            self._path.unlink(missing_ok=True)
            size = format_bytes(self._file.size)
            raise UserError(
                f"the server sends more than the {size} that it named for {self._file.name}; nothing was kept; "
                "try another mirror (HF_ENDPOINT)"
            )
        return super().write(data)


def _digest(path: Path, file: _RemoteFile) -> str:
    """The digest of what was fetched, of the kind that the server names."""
    is_small = len(file.digest) == _GIT_SHA1
    digest = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False) if is_small else hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _wrong_digest(repository: str, file: _RemoteFile, expected: str, found: str) -> UserError:
    return UserError(
        f"{file.name} of {repository} is not the file that was expected: its digest is {found[:16]}..., not "
        f"{expected[:16]}...; nothing was kept: try again, or another mirror (HF_ENDPOINT)"
    )


def _check_room(needed: int) -> None:
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if needed > (free := shutil.disk_usage(folder).free):
        raise UserError(
            f"{format_bytes(needed)} must be downloaded, but {folder} has {format_bytes(free)} free; make room"
        )


def _bar(report: Callable[[int], None]) -> type[Any]:
    """A class for Hugging Face's library, which makes a bar of the bytes."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class ProgressBar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            options |= {"file": io.StringIO(), "mininterval": 0.5, "disable": False}
            super().__init__(*arguments, **options)

        def display(self, *arguments: Any, **options: Any) -> None:
            """Called by `update`, but not more often than twice a second."""
            report(int(self.n))

    return ProgressBar


@contextmanager
def _asking(repository: str) -> Iterator[None]:
    """Let Hugging Face's library ask the server meanwhile; what goes wrong is said in one sentence."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub.errors import HfHubHTTPError

    failures: Any = HfHubHTTPError.__bases__  # OSError, and that of the HTTP library beneath
    try:
        with _network_open():
            yield
    except (*failures, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"model {repository} is not stored here and could not be downloaded ({reason}); check the id and the "
            "connection, or write a folder as a path such as ./mine; what was fetched so far is kept"
        ) from error


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

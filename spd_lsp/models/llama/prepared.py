"""The folder that stands for a GGUF file: its tokenizer in a form read in a moment, and the verdict on the file.

A file is tried once in a process of its own, which llama.cpp may end. The folder lies in the user's cache, under
the file's digest: another file under the same name is tried again. The newest folders are kept.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import platformdirs

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD, python
from spd_lsp.models.checkpoint.gguf_parts import find_parts, is_part
from spd_lsp.models.checkpoint.limits import check_memory, free_memory
from spd_lsp.models.llama.header import GgufHeader, read_header
from spd_lsp.models.llama.library import load_library
from spd_lsp.models.llama.tokenizer import build_tokenizer, cuts_itself

_SOURCE = "gguf.json"
_MAX_FOLDERS = 16  # of some ten megabytes each
_MAX_SECONDS = 900.0  # for a trial; a large file comes from the disk first


@dataclass(frozen=True, slots=True)
class GgufSource:
    """The file that a folder stands for."""

    path: str
    name: str  # as messages show it
    library: str  # the version that was tried; empty where only the vocabulary is of use
    embedding_scale: float  # of mixtures, where the library scales the embeddings of tokens only

    @property
    def is_vocabulary(self) -> bool:
        """Whether the folder stands for the file's vocabulary, and no model."""
        return not self.library


def prepare(path: Path, name: str, report: Callable[[str], None]) -> Path:
    """The folder for a file; `UserError` if llama.cpp is missing, or the file is damaged, unknown or too large."""
    path = find_parts(path.parent.resolve() / path.name)[0]
    path = path if is_part(path.name) else path.resolve()  # a link may lead to a part of another name
    header = read_header(path)
    load_library()
    folder = _cache_folder() / header.digest
    source = read_source(folder)
    if source is None or source.library != version("xllamacpp"):
        check_memory(name, header.size, free_memory())
        _try_file(header, folder, name, report)
    elif source.path != str(path):
        write_source(folder, GgufSource(str(path), name, source.library, source.embedding_scale))
    os.utime(folder)
    return folder


def prepare_vocabulary(path: Path, report: Callable[[str], None]) -> Path:
    """The folder for the vocabulary of a file; llama.cpp is not asked if the file says how its texts are cut."""
    header = read_header(path)
    folder = _cache_folder() / f"{header.digest}-vocabulary"
    source = GgufSource(str(path), "no model", library="", embedding_scale=1.0)
    if read_source(folder) != source:
        if cuts_itself(header):
            folder.mkdir(parents=True, exist_ok=True)
            build_tokenizer(header).save(str(folder / "tokenizer.json"), pretty=False)
            config = describe(header, len(header.metadata["tokenizer.ggml.tokens"]))
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        else:
            shutil.copytree(prepare(path, path.name, report), folder, dirs_exist_ok=True)
        write_source(folder, source)
    return folder


def describe(header: GgufHeader, vocabulary: int) -> dict[str, object]:
    """What others read of a model's configuration."""
    return {
        "model_type": header.architecture,
        "name": str(header.metadata.get("general.name") or header.path.stem),
        "vocab_size": vocabulary,
        "hidden_size": header.number("embedding_length"),
        "eos_token_id": header.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def read_source(folder: Path) -> GgufSource | None:
    """The file that a folder of the cache stands for; None for other folders."""
    if folder.parent != _cache_folder():
        return None
    try:
        return GgufSource(**json.loads((folder / _SOURCE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def write_source(folder: Path, source: GgufSource) -> None:
    """Name the file that a folder stands for."""
    new = folder / f"{_SOURCE}.{os.getpid()}"
    new.write_text(json.dumps(asdict(source)), encoding="utf-8")
    new.replace(folder / _SOURCE)


def _cache_folder() -> Path:
    return _writable(platformdirs.user_cache_path("spd-lsp", appauthor=False) / "gguf")


@lru_cache
def _writable(folder: Path) -> Path:
    """A folder, or one of this process alone where that cannot be written, as in a home that is read-only."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        made = tempfile.mkdtemp(prefix="spd-lsp-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return Path(made)


def _try_file(header: GgufHeader, folder: Path, name: str, report: Callable[[str], None]) -> None:
    """Have a process open the file and write the folder."""

    def note(share: float) -> None:
        report(f"checking {name}, once: {share:.0%}")

    note(0)
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as scratch:
        made = Path(scratch) / folder.name
        made.mkdir()
        command = python("spd_lsp.models.llama.trial", str(header.path), str(made), name)
        status, lines = _run(command, Path(scratch) / "errors", note)
        if status is None:
            raise UserError(f"{name}: llama.cpp did not open it within {_MAX_SECONDS / 60:.0f} minutes")
        if status == 1 and lines:
            raise UserError(lines[-1])
        if status:
            reason = next((line for line in lines if "ASSERT" in line or "rror" in line), "without a reason")
            raise UserError(f"{header.path}: llama.cpp gave up on it ({reason.strip()}); fetch it again")
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
        made.replace(folder)
    _prune(folder.parent)


def _run(command: list[str], errors: Path, note: Callable[[float], None]) -> tuple[int | None, list[str]]:
    """Run a process and note the shares that it prints; its exit status, None if it took too long, and errors."""
    env = {**os.environ, "GGML_NO_BACKTRACE": "1"}  # else a debugger is started where llama.cpp gives up
    with errors.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=NEUTRAL_CWD, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file
        )
    deadline = threading.Timer(_MAX_SECONDS, process.kill)
    deadline.start()
    try:
        with process:
            for line in process.stdout or ():
                with suppress(ValueError):
                    note(float(line))
    finally:
        process.kill()  # for an exception; one that has ended stays as it ended
        in_time = deadline.is_alive()
        deadline.cancel()
    lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return process.returncode if in_time else None, lines


def _prune(cache: Path) -> None:
    """Delete the folders that were not used for longest."""
    folders = sorted(cache.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in folders[_MAX_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)

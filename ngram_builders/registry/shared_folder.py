"""A folder that a team shares, on a disk or at an address that fsspec knows (`s3://...`): files by their names.

In: names and files. Out: the same files elsewhere, checked. As others may write there, a file is read only if it
is regular and no larger than expected. What fails at an address is tried again, and a file whose connection broke
is read on. fsspec is imported only where an address is given.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from ngram_builders.errors import UserError
from ngram_builders.scratch import read_chunks

_CHUNK_BYTES = 1 << 20
_PAUSES = (1.0, 5.0)  # seconds before what failed at an address is tried again; some libraries try again, too
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://")
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


Result = TypeVar("Result")


class SharedFolder:
    """Where tables of a team are kept: a folder on a disk, perhaps of another machine."""

    def __init__(self, address: str) -> None:
        self.folder = Path(address).absolute()
        self.address = str(self.folder)

    def names(self) -> list[str]:
        """All files."""
        return sorted(entry.name for entry in os.scandir(self.folder))

    def open(self, name: str) -> IO[bytes]:
        """A file to read; FileNotFoundError if there is none."""
        file = os.fdopen(os.open(self.folder / name, _FLAGS), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise UserError(f"{self.folder / name} is not a regular file")
        return file

    def put(self, name: str, file: Path) -> None:
        """Store a file under a name, as a whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = self.folder / f".{name}.{secrets.token_hex(4)}"
        try:
            with file.open("rb") as source, scratch.open("xb") as copy:  # readable by whoever may read the folder
                shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
            scratch.replace(self.folder / name)
        finally:
            with suppress(OSError):
                scratch.unlink()

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        (self.folder / name).unlink(missing_ok=True)


class _RemoteFolder(SharedFolder):
    """A folder at an address. Its files appear as a whole, as far as that file system can."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        with explain_failure(address):
            core: Any = import_module("fsspec.core")
            self.system, folder = core.url_to_fs(address, use_listings_cache=False)
        self.path = str(folder).rstrip("/")

    def names(self) -> list[str]:
        return sorted(str(path).rsplit("/", 1)[-1] for path in _retried(self.system.ls, self.path, detail=False))

    def open(self, name: str) -> IO[bytes]:
        return io.BufferedReader(_ResumedFile(self.system, f"{self.path}/{name}"), _CHUNK_BYTES)

    def put(self, name: str, file: Path) -> None:
        _retried(self.system.makedirs, self.path, exist_ok=True)
        _retried(self.system.put_file, str(file), f"{self.path}/{name}")

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            _retried(self.system.rm_file, f"{self.path}/{name}")


class _ResumedFile(io.RawIOBase):
    """A file at an address, opened again where its connection broke."""

    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path
        self._at = 0
        self._file: Any = _retried(system.open, path, "rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """As any file does."""
        data = _retried(self._read, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, size: int) -> bytes:
        if self._file is None:
            self._file = self._system.open(self._path, "rb")
            self._file.seek(self._at)
        try:
            data: bytes = self._file.read(size)
        except Exception:
            self._file = None
            raise
        return data

    def close(self) -> None:
        """As any file does."""
        if self._file is not None:
            self._file.close()
        super().close()


def _retried(work: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """The result of work, tried again where that may help."""
    for pause in _PAUSES:
        try:
            return work(*arguments, **options)
        except (FileNotFoundError, PermissionError, NotADirectoryError, ImportError):
            raise
        except Exception:  # file systems raise what their libraries do
            time.sleep(pause)
    return work(*arguments, **options)


def is_address(place: object) -> bool:
    """Whether this is an address such as `s3://bucket/corpus`, not a path."""
    return isinstance(place, str) and _ADDRESS.match(place) is not None


def path_or_address(place: str) -> Path | str:
    """A path; an address stays a text."""
    return place if is_address(place) else Path(place)


def list_at(pattern: str) -> list[tuple[str, int, int]]:
    """The files at an address, which may be a pattern: each one's address, size, and a number of its state."""
    with explain_failure(pattern):
        folder = _RemoteFolder(pattern)
        found = _retried(folder.system.glob, folder.path, detail=True)
        return [
            (str(folder.system.unstrip_protocol(path)), int(facts["size"]), _state_of(facts))
            for path, facts in sorted(found.items())
            if facts["type"] == "file"
        ]


def _state_of(facts: Any) -> int:
    """A number that is another one once a file has changed."""
    told = sorted((name, str(fact)) for name, fact in facts.items())
    return int.from_bytes(hashlib.blake2b(repr(told).encode(), digest_size=7).digest(), "big")


def open_at(address: str) -> IO[bytes]:
    """A file at an address to read."""
    folder, _, name = address.rpartition("/")
    return _RemoteFolder(folder).open(name)


def open_folder(address: str) -> SharedFolder:
    """The folder at an address; nothing is read yet."""
    if not is_address(address):
        return SharedFolder(address)
    if urlsplit(address).password:
        raise UserError(
            "addresses are stored and shown, so they must hold no passwords; give fsspec the credentials instead"
        )
    return _RemoteFolder(address)


def fetch(folder: SharedFolder, name: str, size: int, digest: str) -> Iterator[bytes]:
    """Yield the bytes of a file of this size and digest; UserError at its end if it is another one."""
    state = hashlib.blake2b(digest_size=32)
    left = size
    with explain_failure(folder.address):
        try:
            file = folder.open(name)
        except FileNotFoundError as error:
            cause = f"{name} is not in {folder.address}: it may have been replaced just now"
            raise UserError(f"{cause}; pull again") from error
        with file:
            while left >= 0 and (chunk := file.read(min(_CHUNK_BYTES, left + 1))):
                left -= len(chunk)
                state.update(chunk)
                yield chunk
    if left or state.hexdigest() != digest:
        raise UserError(
            f"{name} in {folder.address} is damaged: it is not the file that was pushed; push it again"
        )


def digest_of(file: Path) -> str:
    """The digest of a file's content."""
    state = hashlib.blake2b(digest_size=32)
    for chunk in read_chunks(file):
        state.update(chunk)
    return state.hexdigest()


@contextmanager
def explain_failure(address: str) -> Iterator[None]:
    """Turn what a file system raises, which may be anything, into one sentence."""
    try:
        yield
    except UserError:
        raise
    except ImportError as error:
        raise UserError(f"{address} needs a package that is not installed: {error}") from error
    except Exception as error:
        cause = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        cause = cause.strip().splitlines()[0]
        raise UserError(f"cannot use {address}: {cause}; check the address and your access to it") from error

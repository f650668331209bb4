"""The common form of packages: where one comes from, and its files."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.errors import UserError

Files = Iterable[tuple[str, bytes]]  # names with slashes, in a stable order


@dataclass(slots=True)
class Source:
    """The origin of a package, and how much of it was kept."""

    name: str
    version: str
    licence: str
    archive: str
    sha256: str
    language: str
    files: int = 0
    bytes: int = 0
    skipped: str = ""  # why the whole package was skipped

    @classmethod
    def of(cls, archive: Path, name: str, version: str, licence: str, language: str) -> Source:
        """The source that an archive holds."""
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        return cls(name, version, licence, archive.name, digest, language)


def fetch_archive(command: Sequence[str], folder: Path, pattern: str) -> Path:
    """The archive of a package in its folder; if there is none, the command fetches it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob(pattern)):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if not any(folder.glob(pattern)):
            raise UserError(
                f"{command[0]} fetched no archive of {folder.name} ({done.stderr.strip()[-300:]}); "
                "check the network and the package's version, then run this again"
            )
    return min(folder.glob(pattern))


def read_archive(archive: Path, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    """Return the wanted files of a tar archive or Debian package, sorted, without the name of its top folder."""
    data = archive.read_bytes()
    if archive.suffix == ".deb":
        command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        data = subprocess.run(command, capture_output=True, check=True).stdout
    files = []
    # As a stream: seeking backwards in a compressed archive is slow.
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as opened:
        for member in opened:
            name = member.name.removeprefix("./").partition("/")[2]
            if member.isfile() and wanted(name) and (file := opened.extractfile(member)):
                files.append((name, file.read()))
    return sorted(files)

"""The common form of packages: a description of their origin, and their files."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ngram_builders import programs
from ngram_builders.errors import UserError

Files = Iterable[tuple[str, bytes]]  # names with slashes, in a stable order


@dataclass(slots=True, kw_only=True)
class Source:
    """The origin of a package, and how much of it was kept."""

    name: str
    version: str
    licence: str
    archive: str
    sha256: str
    language: str = "python"
    files: int = 0
    bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    skipped: str = ""  # why the whole package was skipped


@dataclass(frozen=True, slots=True)
class FetchedPackage:
    """A fetched package: its description, and a way to read its files."""

    source: Source
    read: Callable[[], Files]


def fetch_archives(command: Sequence[str], requirement: str, into: Path, pattern: str, program: str) -> list[Path]:
    """Return the archives of a package in `into`; run the command to fetch them if there are none."""
    into.mkdir(parents=True, exist_ok=True)
    if not (archives := sorted(into.glob(pattern))):
        status, message = _run_program(command, into)
        archives = sorted(into.glob(pattern))
        if status or not archives:
            raise UserError(
                f"no archive of {requirement}: {program} exited with status {status} ({message}); "
                f"check the network and that {program} works, then run this again"
            )
    return archives


def _run_program(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run a command in a folder. Return its exit status and the last line of its errors."""
    program = command[0] if Path(command[0]).is_absolute() else programs.find_program(command[0])
    if not program:
        return 127, "not installed"
    finished = subprocess.run(
        [program, *command[1:]], cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return finished.returncode, last_line(finished.stderr)


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def read_archive(archive: Path, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    """Return the wanted files of a tar archive or Debian package, sorted, without the name of its top folder."""
    files = []
    with _open_archive(archive) as opened:
        for member in opened:
            name = member.name.removeprefix("./").partition("/")[2]
            if member.isfile() and wanted(name) and (file := opened.extractfile(member)):
                files.append((name, file.read()))
    return sorted(files)


def _open_archive(archive: Path) -> tarfile.TarFile:
    """Open an archive as a stream: seeking backwards in a compressed one is slow."""
    if archive.suffix != ".deb":
        return tarfile.open(archive, "r|*")
    command = [programs.find_program("dpkg-deb") or "/usr/bin/dpkg-deb", "--fsys-tarfile", str(archive.absolute())]
    finished = subprocess.run(command, capture_output=True, check=True, cwd=programs.NEUTRAL_CWD)
    return tarfile.open(fileobj=io.BytesIO(finished.stdout))

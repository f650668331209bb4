"""What every kind of package comes to: a description of where it is from, and its files."""

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
    """One package as it was used: where it came from and how much of it was kept."""

    name: str
    version: str
    licence: str
    archive: str
    sha256: str
    language: str = "python"
    files: int = 0
    bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    skipped: str = ""  # why the whole package was left out


@dataclass(frozen=True, slots=True)
class Package:
    """A fetched package: its description, and a way to read its files."""

    source: Source
    read: Callable[[], Files]


def fetched(command: Sequence[str], requirement: str, into: Path, pattern: str, program: str) -> list[Path]:
    """The archives of a package: those that are there already, else what the command leaves in `into`."""
    into.mkdir(parents=True, exist_ok=True)
    if not (found := sorted(into.glob(pattern))):
        status, said = run(command, into)
        found = sorted(into.glob(pattern))
        if status or not found:
            raise UserError(
                f"expected an archive of {requirement}, found none ({program} exited {status}: {said}); "
                f"check the network and that {program} works, then run this again"
            )
    return found


def run(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """The exit status of a command that works in a folder, and what it said last."""
    program = command[0] if Path(command[0]).is_absolute() else programs.find_program(command[0])
    if not program:
        return 127, "not installed"
    finished = subprocess.run(
        [program, *command[1:]], cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return finished.returncode, last_line(finished.stderr)


def last_line(text: str) -> str:
    """What a program said last."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def unpacked(archive: Path, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    """The wanted files of a tar archive or a Debian package, sorted by their names below its one folder."""
    found = []
    with _opened(archive) as opened:
        for member in opened:
            name = member.name.removeprefix("./").partition("/")[2]
            if member.isfile() and wanted(name) and (file := opened.extractfile(member)):
                found.append((name, file.read()))
    return sorted(found)


def _opened(archive: Path) -> tarfile.TarFile:
    """An archive to be read front to back: going back in a compressed one is slow."""
    if archive.suffix != ".deb":
        return tarfile.open(archive, "r|*")
    command = [programs.find_program("dpkg-deb") or "/usr/bin/dpkg-deb", "--fsys-tarfile", str(archive.absolute())]
    done = subprocess.run(command, capture_output=True, check=True, cwd=programs.AWAY)
    return tarfile.open(fileobj=io.BytesIO(done.stdout))

"""Whoever cuts a table's file short while it is mapped gives wrong numbers, and ends no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ngram_builders.errors import UserError
from ngram_builders.table.mapping import map_file
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import build_suffix_array
from tests.ngram_builders.reference import write_texts

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows lets nobody cut a mapped file short")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A table of many pages."""
    path = tmp_path_factory.mktemp("table") / "t.ngt"
    text = np.random.default_rng(2).integers(0, 5000, size=60_000).tolist()
    searched = build_suffix_array([np.array(text)], 0, 5000)
    write_texts(path, [[*text, 0]], 5000, orders=(2, 3), searched=searched)
    return path.read_bytes()


def in_place(path: Path, new: bytes) -> None:
    """Write over a file as `cp` does: it is empty first, and has the same inode."""
    with path.open("wb") as file:
        file.write(new)


CUTS = {
    "to nothing": lambda path, content: os.truncate(path, 0),
    "in the header": lambda path, content: os.truncate(path, 100),
    "in the middle": lambda path, content: os.truncate(path, len(content) // 2),
    "written over": lambda path, content: in_place(path, content[: len(content) // 3]),
    "and made long again": lambda path, content: (os.truncate(path, 0), os.truncate(path, len(content))),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.slow
def test_truncating_a_table_in_use_ends_no_process(tmp_path: Path, content: bytes, cut: str) -> None:
    path = tmp_path / "t.ngt"
    path.write_bytes(content)
    command = [sys.executable, "-m", "tests.ngram_builders.cutting", str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "asking\n"
        CUTS[cut](path, content)
        said, errors = asking.communicate("cut\n", timeout=120)
    assert asking.returncode == 0, (asking.returncode, errors)
    assert said.endswith("survived\n"), (said, errors)
    if cut != "and made long again":
        with pytest.raises(UserError, match="; run: spd-lsp "):
            Table.open(path)


def in_python(code: str) -> subprocess.CompletedProcess[str]:
    """What another Python makes of this."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


GUARDED = "import mmap, os, signal; from ngram_builders.table import mapping; mapping._install_guard();"


@pytest.mark.parametrize(
    "code",
    [
        "os.kill(os.getpid(), signal.SIGBUS)",
        "f = open('F', 'w+b'); f.truncate(9000); m = mmap.mmap(f.fileno(), 0); f.truncate(0); m[8500]",
    ],
    ids=["sent", "of another mapping"],
)
def test_faults_outside_watched_files_end_the_process_as_before(tmp_path: Path, code: str) -> None:
    done = in_python(GUARDED + code.replace("'F'", repr(str(tmp_path / "file"))))
    assert done.returncode == -signal.SIGBUS, done.stderr


def test_a_previous_handler_is_called_afterwards(tmp_path: Path) -> None:
    done = in_python(
        "import faulthandler; faulthandler.enable();" + GUARDED + "os.kill(os.getpid(), signal.SIGBUS)"
    )
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr


def test_unmapped_files_are_no_longer_watched(tmp_path: Path) -> None:
    """More files can be mapped in turn than at once."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    for _ in range(3000):
        assert map_file(path)[9999] == ord("x")


def test_too_many_mapped_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10)
    held = []
    with pytest.raises(OSError, match="too many mapped files"):
        for _ in range(3000):
            held.append(map_file(tmp_path / "file"))
    assert len(held) > 900

"""Builds in processes of their own that are killed: a table serves, and the next build is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")

BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ngram_builders import build as building
from ngram_builders.build import build
from ngram_builders.token_space import TokenSpace
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.byte_encoder import encode

exec(sys.argv[4])
space, registry = TokenSpace("bytes", 257, 256), Registry(Path(sys.argv[3]))
build([Path(sys.argv[2])], "d", encode, token_space=space, registry=registry)
"""


def build_in_subprocess(repo: Path, data: Path, first: str = "") -> subprocess.CompletedProcess[str]:
    """Build a table `d` in a process of its own, which first runs a line of Python."""
    command = [sys.executable, "-c", BUILD, str(ROOT), str(repo), str(data), first]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository, and a table of it."""
    write_code(tmp_path / "repo", 0)
    assert build_in_subprocess(tmp_path / "repo", tmp_path / "data").returncode == 0
    return tmp_path / "repo"


def write_code(repo: Path, turn: int) -> None:
    repo.mkdir(exist_ok=True)
    for number in range(60):
        lines = (f"def f{number}_{i}(x):\n    return x + {turn * i}\n" for i in range(40))
        (repo / f"{number}.py").write_text("".join(lines))


KILLED = """
import os, threading
building.BATCH_FILES = 2
threading.Timer({}, os.kill, [os.getpid(), 9]).start()
"""


@pytest.mark.slow
def test_after_a_kill_at_any_point_a_table_serves_and_the_next_build_is_right(repo: Path, tmp_path: Path) -> None:
    for turn, seconds in enumerate((0.0, 0.03, 0.07, 0.1, 0.15, 0.2, 0.25)):
        write_code(repo, turn + 1)
        done = build_in_subprocess(repo, tmp_path / "data", KILLED.format(seconds))
        assert done.returncode in (0, -9), done.stderr
        table = Registry(tmp_path / "data").find("d")
        assert table.fault is None
        Table.open(table.path).verify()
    for data in ("data", "fresh"):
        assert build_in_subprocess(repo, tmp_path / data).returncode == 0
    assert [path.name for path in tmp_path.glob("data/d/*.ngt")] == [
        Registry(tmp_path / "fresh").find("d").path.name
    ]

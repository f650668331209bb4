"""Builds in processes of their own: very many files in little memory, and folders that may not be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ngram_builders.registry.registry import Registry
from ngram_builders.table.reader import Table

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="Windows has neither this account of memory nor these modes"
)

BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ngram_builders.build import build
from ngram_builders.errors import UserError
from ngram_builders.ngrams import TokenSpace
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.byte_encoder import encode

try:
    made = build([Path(sys.argv[2])], "d", encode, token_space=TokenSpace("bytes", 257, 256),
                 registry=Registry(Path(sys.argv[3])))
    status = Path("/proc/self/status")  # `getrusage` may give the peak of the process that started this one
    if status.exists():
        peak = 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    else:
        import resource
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(made.files, peak)
except UserError as error:
    sys.exit(str(error))
"""


def build_in_subprocess(*arguments: object, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", BUILD, str(ROOT), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def unprivileged() -> tuple[str, ...]:
    """What runs a command whom file modes bind: anyone but root, or root without that privilege."""
    if os.geteuid():
        return ()
    if not shutil.which("setpriv"):
        pytest.skip("root may write anywhere, and there is no setpriv")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@contextmanager
def read_only(*folders: Path) -> Iterator[None]:
    for folder in folders:
        folder.chmod(0o555)
    try:
        yield
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.slow
def test_a_hundred_thousand_small_files_are_counted_in_little_memory(tmp_path: Path) -> None:
    for number in range(100):
        folder = tmp_path / "repo" / str(number)
        folder.mkdir(parents=True)
        for i in range(1000):
            (folder / f"{i}.py").write_text(f"x = {number * 1000 + i}\n")
    done = build_in_subprocess(tmp_path / "repo", tmp_path / "data")
    shutil.rmtree(tmp_path / "repo")
    assert done.returncode == 0, done.stderr
    files, peak = map(int, done.stdout.split())
    assert files == 100_000
    assert peak < 300e6  # bytes; Python and numpy take 50 MB of it


def test_an_unwritable_data_folder_is_reported_and_its_table_still_served(
    tmp_path: Path, unprivileged: tuple[str, ...]
) -> None:
    repo, data = tmp_path / "repo", tmp_path / "data"
    repo.mkdir()
    (repo / "a.py").write_text("x = 1\n")
    assert build_in_subprocess(repo, data).returncode == 0
    old = Registry(data).find("d").path
    (repo / "a.py").write_text("x = 2\n")
    with read_only(data, old.parent):
        refused = build_in_subprocess(repo, data, before=unprivileged)
    assert refused.returncode == 1
    assert str(data) in refused.stderr
    assert "Traceback" not in refused.stderr
    assert Registry(data).find("d").path == old
    Table.open(old).verify()
    assert build_in_subprocess(repo, data).returncode == 0


def test_a_read_only_repository_is_counted(tmp_path: Path, unprivileged: tuple[str, ...]) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "a.py").write_text("x = 1\n")
    with read_only(repo):
        done = build_in_subprocess(repo, tmp_path / "data", before=unprivileged)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 ")

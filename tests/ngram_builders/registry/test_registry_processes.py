"""Builds of one table and a server that reads it are several processes on one registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import writer

ROOT = Path(__file__).parents[3]
START = """
import sys
from pathlib import Path
from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import writer

registry, repo, number = Registry(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
"""
BUILDER = START + "for token in range(12): registry.install('mine', [writer(token + number)], roots=[repo])"
# A server: it queries the registry at every keystroke, and again if the table it got has just been replaced.
READER = f"""{START}
while not (repo / "stop").exists():
    for attempt in range(100):
        [(found, weight)] = registry.tables_for(repo / "x.py", "python")
        registry.generation()
        try:
            Table.open(found.path).verify()
            break
        except Exception:
            if Registry(registry.folder).tables_for(repo / "x.py", "python")[0][0].path == found.path:
                raise
    else:
        raise SystemExit("never served")
"""


def start(script: str, registry: Registry, repo: Path, number: int = 0) -> subprocess.Popen[str]:
    """A process that is ready to use the registry."""
    command = [sys.executable, "-c", script, str(registry.folder), str(repo), str(number)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin and process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_two_builds_of_one_table_leave_one_valid_table_and_a_reader_always_finds_one(
    registry: Registry, repo: Path
) -> None:
    registry.install("mine", [writer(99)], roots=[repo])
    reader, *builders = (start(script, registry, repo, n) for n, script in enumerate((READER, BUILDER, BUILDER)))
    for process in (reader, *builders):
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in (*builders, reader):
        if process is reader:
            (repo / "stop").touch()
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    (table,) = registry.tables()
    assert table.fault is None
    Table.open(table.path).verify()
    assert sorted(path.name for path in table.path.parent.iterdir()) == ["index.msgpack", table.path.name]

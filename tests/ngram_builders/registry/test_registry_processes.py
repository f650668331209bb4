"""Several processes use one registry: builds of one table, a server that reads, a writer killed at any moment."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import writer

ROOT = Path(__file__).parents[3]
START = (
    "import itertools, sys; from pathlib import Path; from ngram_builders.registry.registry import Registry\n"
    "from ngram_builders.index.table_file import Table; from tests.ngram_builders.small_tables import writer\n"
    "registry, repo, number = Registry(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])\n"
    "print('ready', flush=True); sys.stdin.readline()\n"
)
BUILDER = START + "for token in range(12): registry.install('mine', [writer(token + number)], roots=[repo])"
WRITER = START + (
    "for turn in itertools.count():\n"
    "    registry.install('mine', [writer(turn % 50, 60 + turn % 30)], roots=[repo])\n"
    "    registry.assign_workspace(repo, [('mine', 0.1 + turn % 9 / 10)])\n"
)
# A server: it queries the registry at every keystroke, and again if the table it got has just been replaced.
READER = START + (
    "seen = set()\n"
    "for turn in itertools.count():\n"
    "    for attempt in range(100):\n"
    "        (found, weight), = registry.tables_for(repo / 'x.py', 'python')\n"
    "        generation = registry.generation()\n"
    "        try:\n"
    "            Table.open(found.path).verify()\n"
    "            break\n"
    "        except Exception:\n"
    "            if Registry(registry.folder).tables_for(repo / 'x.py', 'python')[0][0].path == found.path:\n"
    "                raise\n"
    "    else: raise SystemExit('never served')\n"
    "    seen.add(found.path.name)\n"
    "    if (repo / 'stop').exists(): break\n"
    "print(turn, len(seen))"
)


def start(
    script: str, registry: Registry, repo: Path, numbers: Sequence[int] = (0,)
) -> list[subprocess.Popen[str]]:
    """Start processes that use the registry at the same moment."""
    command = [sys.executable, "-c", script, str(registry.folder), str(repo)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen([*command, str(number)], cwd=ROOT, text=True, **pipes) for number in numbers]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return processes


def end(process: subprocess.Popen[str]) -> str:
    """Wait for a process to succeed and return its output."""
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return output


@pytest.mark.slow
def test_two_builds_of_one_table_leave_one_valid_table_and_a_reader_always_finds_one(
    registry: Registry, repo: Path
) -> None:
    registry.install("mine", [writer(99)], roots=[repo])
    (reader,) = start(READER, registry, repo)
    for builder in start(BUILDER, registry, repo, (10, 40)):
        end(builder)
    (repo / "stop").touch()
    reads, tables = map(int, end(reader).split())
    assert reads >= 1
    assert tables >= 1
    (table,) = registry.tables()
    assert table.fault is None
    Table.open(table.path).verify()
    assert sorted(path.name for path in table.path.parent.iterdir()) == ["index.msgpack", table.path.name]


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_a_valid_registry_for_the_next_build(
    registry: Registry, repo: Path
) -> None:
    moments = random.Random(7)
    registry.install("mine", [writer(5)], roots=[repo])
    registry.install("other", [writer(6)])
    registry.assign_language("go", [("other", 0.3)])
    for _ in range(12):
        (process,) = start(WRITER, registry, repo)
        time.sleep(moments.uniform(0.0, 0.15))
        process.kill()
        _, errors = process.communicate()
        assert errors == ""
        assert_valid(Registry(registry.folder), repo)
    with registry.lock_for_build("mine") as home:
        assert registry.install("mine", [writer(8)], roots=[repo]).fault is None
    (home / ".building").unlink(missing_ok=True)
    remaining = sorted(path.name for path in registry.find("mine").path.parent.iterdir())
    assert remaining == ["index.msgpack", registry.find("mine").path.name]


def assert_valid(registry: Registry, repo: Path) -> None:
    """Check that both tables are there, valid and in use."""
    assert registry.fault() is None
    mine, other = sorted(registry.tables(), key=lambda table: table.name != "mine")
    assert (mine.name, mine.fault, other.name, other.fault) == ("mine", None, "other", None)
    for table in (mine, other):
        Table.open(table.path).verify()
    assert [table.name for table, _ in registry.tables_for(repo / "x.py", "python")] == ["mine"]
    assert registry.assignments().languages["go"] == {"other": 0.3}


@pytest.mark.slow
def test_concurrent_assignments_are_all_kept(registry: Registry, repo: Path) -> None:
    registry.install("mine", [writer(5)])
    script = START + "for turn in range(20): registry.assign_workspace(repo / f'{number}-{turn}', [('mine', 0.5)])"
    for process in start(script, registry, repo, range(3)):
        end(process)
    assert len(registry.assignments().workspaces) == 60


def test_of_two_concurrent_imports_of_one_name_one_fails(registry: Registry, repo: Path) -> None:
    """The name was free when both checked."""
    script = START + (
        "import time; write = writer(number)\n"
        "def slowly(path): time.sleep(0.3); return write(path)\n"
        "registry.install('team', [slowly], overwrite=False)"
    )
    processes = start(script, registry, repo, (1, 2))
    ends = [process.communicate(timeout=60)[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 1]
    assert sum("an n-gram table named team exists" in error for error in ends) == 1

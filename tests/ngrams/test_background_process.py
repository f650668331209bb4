"""Tables are built again in the background: one at a time, without waiting, never twice for the same table."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ngram_builders.registry.ngram_table import NgramTable
from spd_lsp.ngrams.background_process import Rebuilder
from tests.processes import TIMEOUT

SLEEPS = "import time; time.sleep(600)"


def table(name: str = "mine", table: str = "one") -> NgramTable:
    return NgramTable(name=name, paths=(Path(table),))


def python(code: str) -> Callable[[NgramTable], list[str]]:
    return lambda table: [sys.executable, "-c", code, table.name]


def finish(rebuilder: Rebuilder) -> None:
    assert rebuilder.running is not None
    rebuilder.running[1].wait(TIMEOUT)


def test_a_build_runs_beside_and_the_next_one_after_it(tmp_path: Path):
    code = f"import sys; open({str(tmp_path / 'built')!r}, 'a').write(sys.argv[1] + chr(10))"
    rebuilder = Rebuilder(python(code))
    outgrown = [table("first", "one"), table("second", "two")]
    rebuilder.update(outgrown)
    finish(rebuilder)
    assert rebuilder.update(outgrown) == ["first"]
    finish(rebuilder)
    assert rebuilder.update(outgrown[1:]) == ["second"]
    assert rebuilder.running is None
    assert (tmp_path / "built").read_text().split() == ["first", "second"]
    assert rebuilder.problems == []


def test_one_that_failed_is_named_and_left_until_it_has_another_table():
    rebuilder = Rebuilder(python("raise SystemExit(1)"))
    rebuilder.update([table()])
    finish(rebuilder)
    for _ in range(3):
        rebuilder.update([table()])
        assert rebuilder.running is None
    assert rebuilder.problems == ["n-gram table mine is outdated; run: spd-lsp ngrams rebuild mine"]
    rebuilder.update([table(table="two")])
    assert rebuilder.running is not None
    finish(rebuilder)


def test_a_command_that_cannot_be_started_is_a_problem_and_no_error():
    rebuilder = Rebuilder(lambda table: ["/nowhere/at/all"])
    rebuilder.update([table()])
    assert rebuilder.running is None
    assert len(rebuilder.problems) == 1


def test_tending_does_not_wait_and_a_build_ends_with_its_server():
    rebuilder = Rebuilder(python(SLEEPS))
    started = time.monotonic()
    rebuilder.update([table()])
    rebuilder.update([table(), table("other", "two")])
    assert time.monotonic() - started < TIMEOUT
    assert rebuilder.running is not None
    process = rebuilder.running[1]
    assert process.poll() is None
    del rebuilder
    gc.collect()
    assert process.returncode not in (None, 0)

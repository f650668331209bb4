"""Programs under guard. What a system does not guard is told, so those tests ask only where it does."""

from __future__ import annotations

import sys

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.paper import sandbox
from spd_lsp.evaluation.paper.sandbox import PROBES, probe, require_guards, run_sandboxed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be limited there")


def test_a_program_that_reaches_its_end_passes() -> None:
    assert run_sandboxed("import math, typing, collections, hashlib, random, re\nassert math.sqrt(4) == 2").passed


@pytest.mark.parametrize(
    "program",
    [
        "assert 1 == 2",
        "def (",
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "\ud800",
    ],
)
def test_one_that_does_not_fails(program: str) -> None:
    assert not run_sandboxed(program).passed


@pytest.mark.slow
def test_what_it_prints_is_dropped() -> None:
    assert run_sandboxed("print('passed')\nassert False").ending == "AssertionError"
    assert run_sandboxed("while True: print('x' * 1000)").ending == ""  # stopped by its processor time


def test_it_sees_nothing_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "x")
    assert run_sandboxed("import os\nassert 'A_SECRET' not in os.environ\nassert os.getcwd() != ''").passed


def test_a_sleeper_ends_by_the_clock() -> None:
    assert run_sandboxed("import time\ntime.sleep(60)", wall_seconds=2).ending == "time limit"


@pytest.mark.slow
def test_limits_hold_everywhere() -> None:
    found = probe()
    assert found.keys() == PROBES.keys()
    assert not found["take 4 GB of memory"]
    assert not found["compute forever"]
    assert not found["write a file"]  # its size is limited, even without Landlock


@pytest.mark.slow
def test_the_network_is_out_of_reach_where_the_system_can_cut_it_off() -> None:
    if probe()["reach the network"]:
        pytest.skip("no network namespaces here")
    assert run_sandboxed("import socket\nsocket.socket()").passed  # there is one, and nothing to reach by it


def test_open_doors_are_refused_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    doors = dict.fromkeys(PROBES, False) | {"reach the network": True}
    monkeypatch.setattr(sandbox, "probe", lambda: doors)
    with pytest.raises(UserError, match="could reach the network here"):
        require_guards(allow_weak=False)
    assert require_guards(allow_weak=True) == doors

"""Programs that nobody has read: they pass by coming to their end, and nothing of them is left or gets out."""

from __future__ import annotations

import os
import platform
import sys

import pytest

from spd_lsp.evaluation.infilling.sandbox import is_confined, passes

if os.name == "nt":
    pytest.skip("programs are run on Linux and macOS only", allow_module_level=True)

HAS_FILTER = (sys.platform, platform.machine()) == ("linux", "x86_64")
has_filter = pytest.mark.skipif(not HAS_FILTER, reason="needs Linux on x86-64")
SHORT = {"cpu_seconds": 1, "seconds": 2.0}

REFUSED = """
try:
    {}
except OSError as error:
    assert error.errno in (1, 11, 27), error  # not permitted, too many processes, too large
else:
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", True),
        ("def f(x):\n    return x + 1\nassert f(1) == 2", True),
        ("import math, re, hashlib, random, collections, string, typing, datetime, json, copy, itertools", True),
        ("assert 1 == 2", False),
        ("def f(:", False),
        ("raise SystemExit", False),  # before the tests
        ("import os; os._exit(0)", False),
        ("import ctypes; ctypes.string_at(0)", False),  # crashes
        ("def f(n):\n    return f(n + 1)\nf(0)", False),
        ("input()", False),
    ],
)
def test_a_program_passes_if_it_comes_to_its_end(program: str, expected: bool):
    assert passes(program) is expected


@pytest.mark.parametrize("program", ["while True: pass", "import time; time.sleep(1000)"])
def test_what_never_ends_is_ended(program: str):
    assert not passes(program, **SHORT)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no limit of memory")
def test_memory_is_bounded():
    assert not passes("x = bytearray(2 << 30)")
    assert passes("try:\n    x = bytearray(2 << 30)\nexcept MemoryError:\n    pass")


def test_output_goes_nowhere(capfd: pytest.CaptureFixture[str]):
    assert passes("import sys\nfor _ in range(5000): print('x' * 1000); print('y' * 1000, file=sys.stderr)")
    assert capfd.readouterr() == ("", "")


def test_nothing_of_the_environment_is_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_KEY", "1234")
    assert passes("import os\nassert 'SECRET_KEY' not in os.environ\nassert os.listdir() == []")


@pytest.mark.skipif(os.getuid() == 0 and not HAS_FILTER, reason="root is not bound")
def test_no_process_is_started():
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        break"
    assert passes(bomb, **SHORT)
    assert passes(REFUSED.format("import subprocess; subprocess.run(['true'])"), **SHORT)


@has_filter
@pytest.mark.parametrize(
    "call",
    [
        "__import__('socket').socket()",
        "__import__('os').kill(__import__('os').getppid(), 0)",
        "__import__('os').mkdir('made')",
        "__import__('os').remove({path!r})",
        "__import__('os').rename({path!r}, 'here')",
        "__import__('os').execv('/bin/true', ['true'])",
        "open({path!r}, 'w')",
        "open('made', 'x')",
    ],
)
def test_nothing_outside_is_changed(call: str, tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    assert passes(REFUSED.format(call.format(path=str(file))))
    assert file.read_text() == "kept"
    assert passes(f"assert open({str(file)!r}).read() == 'kept'")  # so what is refused is the change


@has_filter
def test_limits_cannot_be_lifted():
    assert is_confined()
    lift = "import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))\n"
    assert passes(f"{lift}except (OSError, ValueError):\n    pass\nelse:\n    raise AssertionError")

"""A real Helix with our languages.toml and the bundled model: a draft is listed, accepted and saved."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installed import HOW, program
from tests.processes import TIMEOUT, wait_until

ROOT = Path(__file__).parents[2]
HELIX = program("hx")
TEXT = "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json."
DRAFT = "loads(file)"  # the first, for this text

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not HELIX, reason=f"needs hx; {HOW}")]


class Helix:
    """Helix in a terminal that nobody sees."""

    def __init__(self, file: Path) -> None:
        self.terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        command = [HELIX, str(file)]
        self.process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, cwd=file.parent)
        os.close(end)
        self.shown = ""

    def press(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def read(self, seconds: float = 0.2) -> str:
        """Read what is drawn meanwhile; return all that was drawn."""
        while select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.shown += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # it has ended
                break
        return self.shown


@pytest.fixture
def helix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Helix]:
    """Helix with our configuration as it stands, and a Python file."""
    configuration = tmp_path / "config" / "helix"
    configuration.mkdir(parents=True)
    shutil.copy(ROOT / "editors" / "helix" / "languages.toml", configuration)
    (tmp_path / "reader.py").write_text(f"{TEXT}\n")
    start = tmp_path / "bin" / "spd-lsp"
    start.parent.mkdir()
    start.write_text(f'#!/bin/sh\nexec {sys.executable} -m spd_lsp "$@"\n')
    start.chmod(0o755)
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("PATH", os.pathsep.join([str(start.parent), "/usr/bin", "/bin"]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    editor = Helix(tmp_path / "reader.py")
    yield editor
    editor.process.kill()
    editor.process.wait(TIMEOUT)
    os.close(editor.terminal)


def test_a_draft_is_listed_and_accepted(helix: Helix, tmp_path: Path):
    wait_until("the file is shown", lambda: "return" in helix.read())
    helix.press("geglA")  # to the end of the last line

    def listed() -> bool:
        helix.press("\x18")  # Ctrl-x asks for completions
        return DRAFT in helix.read(1.0)

    wait_until("the draft is listed", listed)
    for keys in ("\t", "\r", "\x1b", ":wq\r"):  # select the first, accept it, save; together, Esc would be Alt
        helix.press(keys)
        helix.read(0.5)
    wait_until("Helix has ended", lambda: helix.read() and helix.process.poll() is not None)
    assert (tmp_path / "reader.py").read_text() == f"{TEXT}{DRAFT}\n"

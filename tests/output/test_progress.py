"""One progress for all commands: bars on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time

from spd_lsp.output.progress import progress


def test_bars_are_shown_on_a_terminal_only(capsys, monkeypatch):
    def stages():
        with progress() as report:
            report("bytes", 10_000_000, 40_000_000)
            report("files", 3, 17)

    stages()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    monkeypatch.setenv("TERM", "xterm")
    stages()
    shown = capsys.readouterr().err
    assert "10.0 MB of 40.0 MB" in shown
    assert "3 of 17" in shown


def test_a_log_has_a_line_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress() as report:
        for second in range(0, 95, 5):
            now[0] = float(second)
            report("counts", 2 + second // 10, 20)
        report("table", 0, 0)
    assert capsys.readouterr().err == "".join(f"counts: {done} of 20\n" for done in (5, 8, 11))

"""One progress for all commands: bars on a terminal after a second, and a word for who stops a long one."""

from __future__ import annotations

import click
from click.testing import CliRunner

from spd_lsp.output.progress import progress, resumable_progress


def test_bars_are_shown_after_a_second_on_a_terminal_only(capsys, monkeypatch):
    def stages():
        with progress() as report:
            report("bytes", 10_000_000, 40_000_000)
            report("files", 3, 17)

    monkeypatch.setattr("spd_lsp.output.progress.SHOW_AFTER", 0.0)
    stages()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    stages()
    shown = capsys.readouterr().err
    assert "10.0 MB of 40.0 MB" in shown
    assert "3 of 17" in shown
    monkeypatch.setattr("spd_lsp.output.progress.SHOW_AFTER", 60.0)
    stages()
    assert "MB" not in capsys.readouterr().err


def test_who_stops_a_command_that_can_go_on_is_told_so():
    @click.command()
    def long():
        with resumable_progress():
            raise KeyboardInterrupt

    stopped = CliRunner().invoke(long)
    assert stopped.exit_code == 130
    assert stopped.stderr == "interrupted; run the same command again to resume\n"

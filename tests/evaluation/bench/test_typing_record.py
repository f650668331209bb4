"""Someone types a file in three editors: what is written is the file, and what is counted is what happened."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.evaluation.bench import typing_record
from spd_lsp.evaluation.bench.server_client import ServerClient
from spd_lsp.evaluation.bench.typist import EDITORS, TypingRecord, Typist

TEXT = "if x:\n    value = 1\n"


class FakeServer:
    """Always knows what comes next, and applies what is typed."""

    def __init__(self, text: str, offered: int) -> None:
        self.text = text
        self.offered = offered
        self.written = ""

    def notify(self, method: str, params: Any) -> None:
        if method == "textDocument/didChange":
            (change,) = params["contentChanges"]
            lines = self.written.split("\n")
            assert change["range"]["start"] == {"line": len(lines) - 1, "character": len(lines[-1])}
            self.written += change["text"]

    def send_request(self, method: str, params: Any) -> tuple[int, asyncio.Future[Any]]:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        start = len(self.written)
        reply.set_result({"items": [{"insertText": self.text[start : start + self.offered]}]})
        return 1, reply

    async def request(self, method: str, params: Any = None) -> Any:
        return {"lastPasses": 0}


async def typed(offered: int, *, waits: bool = False) -> TypingRecord:
    editor = EDITORS[0] if waits else replace(EDITORS[0], pace=(0.06, 0.06), pause=0.0)
    server, record = FakeServer(TEXT, offered), TypingRecord()
    document = "file:///a.py", "python"
    someone = Typist(server, editor, document, record, seed=0, waits=waits)  # type: ignore[arg-type]
    await someone.type("", TEXT, "", 99)
    assert server.written == TEXT
    return record


async def test_what_is_right_is_accepted_and_saves_keys_but_indentation_does_not():
    record = await typed(offered=14)
    assert record.accepted == 2
    assert record.keys + record.saved == len("if x:\nvalue = 1\n")
    assert record.wrong == 0 and record.usable == record.shown == record.without_pass


async def test_short_drafts_are_typed():
    record = await typed(offered=2)
    assert (record.accepted, record.saved, record.keys) == (0, 0, len("if x:\nvalue = 1\n"))
    assert record.agreed and not record.flickers, "what was foreseen goes on"


def test_the_part_that_is_typed_is_typed_on_lines_of_its_own():
    assert typing_record._parts("a\nb\r\nc") == ("a\n", "b", "\nc")
    text = "".join(f"line {number}\n" for number in range(9))
    assert "".join(typing_record._parts(text)) == text


async def test_whoever_accepts_nothing_types_every_character_and_counts_what_is_shown():
    server, record = FakeServer(TEXT, 14), TypingRecord()
    someone = Typist(server, EDITORS[3], ("file:///a.py", "python"), record, seed=0, waits=True)  # type: ignore[arg-type]
    await someone.type("", TEXT, "", 99)
    assert server.written == TEXT
    assert (record.accepted, record.keys) == (0, len("if x:\nvalue = 1\n"))
    assert record.shown == record.keys - 1 and record.shown_in_pauses == record.pauses > 0


@pytest.mark.slow
def test_the_command_types_a_file_and_reports_on_three_editors(tmp_path: Path):
    file = tmp_path / "app.py"
    file.write_text("import os\n\n\n" + "def read(path):\n    return os.listdir(path)\n\n\n" * 9)
    arguments = ["--data-dir", str(tmp_path / "data"), "bench", "--typing", str(file), "--keys", "12"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "| VS Code | Neovim | Emacs | VS Code, nothing accepted |" in result.output
    assert "| keys | 12 | 12 | 12 | 12 |" in result.output
    assert "| something was shown, % of answers | 0.0 |" not in result.output


async def test_whoever_waits_for_answers_counts_the_same_without_a_pause() -> None:
    in_real_time = await typed(offered=14)
    waiting = await typed(offered=14, waits=True)
    for counted in ("keys", "saved", "asked", "shown", "usable", "wrong", "accepted"):
        assert getattr(waiting, counted) == getattr(in_real_time, counted)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
async def test_the_processes_that_the_server_starts_count_too() -> None:
    """The parser's process grew with every key, and no record showed it."""
    held = "held = b'x' * (50 << 20); print(len(held), flush=True); input()"
    server = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", server, held, stdin=pipe, stdout=pipe)
    assert process.stdout and await process.stdout.readline()
    client = ServerClient(process)
    assert 50 << 20 < client.memory < 200 << 20
    assert client.cpu_seconds > 0
    process.stdin.close()  # type: ignore[union-attr]
    await process.wait()

"""On a terminal: no command prints what a repository, a table or a setting would have the terminal do."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ngram_builders.index.table_file import Table, write_table
from ngram_builders.registry.registry import Registry
from spd_lsp.output.printable import HIDDEN_CHARACTERS, guard_output, printable
from tests.lsp.lsp_client import at
from tests.lsp.test_server_process import process, serving
from tests.ngram_builders.small_tables import writer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal, no such file names")

TITLE = "\x1b]0;pwned\x07"  # sets a terminal's title
LINE = f'alarm("{TITLE}\u202e red")\n'
CODE = LINE * 12


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository whose name and files are hostile."""
    folder = tmp_path / f"é{TITLE}\u202e"
    folder.mkdir()
    (folder / f"b{TITLE}.py").write_text("x = 1\n" + CODE, encoding="utf-8")
    (folder / os.fsdecode(b"caf\xe9\x9b31m.py")).write_text("y = 1\n" + CODE, encoding="utf-8")
    return folder


def run(*arguments: str | Path, data: Path) -> str:
    """What a command writes to a terminal."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "spd_lsp", "--data-dir", str(data), *map(str, arguments)]
    # a dumb one: elsewhere bars, which are orders, may be drawn between the lines
    environment = {**os.environ, "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=data.parent)
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:
        pass  # how Linux says that the other end is closed
    child.wait()
    os.close(ours)
    return written.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


@pytest.mark.slow
def test_what_is_said_of_a_repository_is_printable(repo: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    odd = next(path for path in repo.iterdir() if path.name.startswith("caf"))
    said = [
        run("build-ngrams", repo, "--why", odd, data=data),
        run("build-ngrams", repo, data=data),
        run("ngrams", "list", data=data),
        run("ngrams", "list", "--json", data=data),
        run("complete", f"{repo}/none.py:1:1", data=data),
        run("doctor", "--model", f"./{TITLE}", data=data),
    ]
    for text in said:
        assert text.strip()
        assert printable(text.replace("\udce9", "")) == text.replace("\udce9", "")
    assert "é\\u001b]0;pwned\\u0007\\u202e" in said[2]


def test_what_an_imported_table_says_of_itself_is_printable(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "other")
    table = Table.open(registry.install("evil", [writer(5, 7)]).path)
    hostile = f"shop{TITLE}\u202e"
    origin = {"model": hostile, "built": 0.0, "sources": hostile}
    file = tmp_path / f"team{TITLE}.ngt"
    write_table(file, table.array, replace(table.summary, origin=origin))
    for arguments in (["import", file, "--name", "team"], ["list"]):
        said = run("ngrams", *arguments, data=tmp_path / "data")
        assert "team" in said
        assert printable(said) == said


def test_drafts_on_a_terminal_are_printable_and_their_json_is_json(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(CODE + "alarm(", encoding="utf-8")
    said = run("complete", tmp_path / "demo.py:13:7", data=tmp_path / "data")
    assert "no draft" in said or "drafts" in said
    assert printable(said) == said
    command = [sys.executable, "-m", "spd_lsp", "complete", "demo.py:13:7", "--json", "--model", f"./{TITLE}\x7f"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert printable(found.stdout + found.stderr) == found.stdout + found.stderr


@pytest.mark.slow
async def test_an_editor_is_offered_and_told_nothing_that_hides(tmp_path: Path) -> None:
    async with serving(tmp_path, initializationOptions={f"drafts{TITLE}": 3, "decoder": f"own{TITLE}\u202e"}) as (
        _,
        editor,
    ):
        editor.open(CODE + "alarm(")
        menu = await editor.request("textDocument/completion", at(12, 6))
        ghosts = await editor.request("textDocument/inlineCompletion", at(12, 6, 1))
        offered = [item["textEdit"]["newText"] for item in menu["items"]]
        offered += [item["insertText"] for item in ghosts["items"]]
        assert not any(map(HIDDEN_CHARACTERS.search, offered))
        told = [message["message"] for message in editor.received("window/showMessage")]
        assert told and not any(map(HIDDEN_CHARACTERS.search, told)), told
    hostile = ("serve", "--device", "cpu", "--model", f"./{TITLE}\u202e")
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), *hostile) as (_, editor):
        await editor.start_and_load()
        status = await editor.status()
        assert status["problem"] and not HIDDEN_CHARACTERS.search(status["problem"])


def test_a_stream_that_is_guarded_stays_open_and_writes_what_its_encoding_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for encoding, written in (("ascii", "é\\u202e"), ("latin-1", "é\\u202e")):
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            guard_output()
            sys.stdout.write("é\u202e\N{SNOWMAN}\n")
            sys.stdout.flush()
        shown = stream.buffer.getvalue().decode("utf-8" if encoding == "ascii" else encoding)
        assert shown == f"{written}{chr(0x2603) if encoding == 'ascii' else chr(92) + 'u2603'}\n"

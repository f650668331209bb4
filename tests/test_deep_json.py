"""What is nested deeper than anything means is refused in a sentence; the server lives."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import STARTER_FILES
from tests.lsp.lsp_client import at
from tests.lsp.test_server_process import process

DEEP = 100_000


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def frame(body: str) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body.encode())


@pytest.mark.slow
@pytest.mark.parametrize("depth", [900, DEEP])
async def test_a_deep_message_is_survived_and_answered_if_readable(tmp_path: Path, depth: int) -> None:
    deep = nested(depth)
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), "serve", "--device", "cpu") as (
        child,
        editor,
    ):
        first = '{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"processId":null,"rootUri":null,'
        editor.writer.write(frame(first + f'"capabilities":{{}},"initializationOptions":{{"drafts":{deep}}}}}}}'))
        changed = '{"jsonrpc":"2.0","method":"workspace/didChangeConfiguration","params":{"settings":{"spd-lsp":'
        settings = changed + deep + "}}}"
        request = f'{{"jsonrpc":"2.0","id":8,"method":"textDocument/completion","params":{deep}}}'
        replies = [editor.expect(7), editor.expect(8)]
        editor.writer.write(frame(settings) + frame(request))
        if depth == DEEP:
            await editor.start()
        else:
            await replies[0]
            editor.notify("initialized", {})
            assert "error" in await replies[1]
        await editor.ready()
        editor.open("import os\nos.")
        assert (await editor.request("textDocument/completion", at(1, 3)))["items"]
        assert child.returncode is None


@pytest.mark.slow
def test_a_deep_model_folder_is_refused_in_a_sentence(tmp_path: Path) -> None:
    shutil.copy(STARTER_FILES / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(f'{{"model_type":"llama","hidden_size":{nested(DEEP)}}}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "a.py").write_text("x = 1\n")
    command = [sys.executable, "-m", "spd_lsp", "complete", "a.py:1:3", "--model", str(tmp_path)]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    assert found.stderr.splitlines()[-1].startswith("Error: ")

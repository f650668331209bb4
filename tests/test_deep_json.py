"""What is nested deeper than anything means is refused in a sentence; the server lives."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.index.table_file import MAGIC, VERSION, Table
from ngram_builders.scratch import read_record
from spd_lsp.models.checkpoint.hub import vocabulary_size
from spd_lsp.models.checkpoint.limits import memory_needed
from tests.conftest import STARTER_FILES
from tests.lsp.lsp_client import at
from tests.lsp.test_server_process import process

DEEP = 100_000


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def frame(body: str) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body.encode())


@pytest.mark.slow
@pytest.mark.parametrize("depth", [300, 900, DEEP])
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


def test_deep_files_of_a_model_count_as_damaged(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors.index.json"):
        (tmp_path / name).write_text('{"a":' + nested(DEEP) + "}", encoding="utf-8")
    head = ('{"a":' + nested(DEEP) + "}").encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    assert vocabulary_size(tmp_path) is None
    assert memory_needed(tmp_path) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_deep_model_folder_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    shutil.copy(STARTER_FILES / "tokenizer.json", tmp_path)
    described = f'{{"model_type":"llama","hidden_size":{nested(DEEP)}}}' if name == "config.json" else "{}"
    (tmp_path / "config.json").write_text(described, encoding="utf-8")
    if name == "tokenizer.json":
        (tmp_path / name).write_text('{"a":' + nested(DEEP) + "}", encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "a.py").write_text("x = 1\n")
    command = [sys.executable, "-m", "spd_lsp", "complete", "a.py:1:3", "--model", str(tmp_path)]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    assert found.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("name", ["index.msgpack", "assigned.msgpack"])
def test_deep_records_of_the_registry_are_no_records(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x81\xa1a" + b"\x91" * DEEP + b"\xc0")
    with pytest.raises((ValueError, TypeError)):
        read_record(tmp_path / name)


def test_a_table_with_a_deep_header_is_refused(tmp_path: Path) -> None:
    head = b"\x81\xa1a" + b"\x91" * 5000 + b"\xc0"
    prefix = MAGIC + bytes([VERSION]) + struct.pack("<II", len(head), zlib.crc32(head))
    (tmp_path / "a.ngt").write_bytes(prefix + head + bytes(4096))
    with pytest.raises(UserError, match="its header is unreadable"):
        Table.open(tmp_path / "a.ngt")

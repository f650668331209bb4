"""`spd-lsp connect` between an editor's pipes and a server's socket: its exit status says which of them left."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lsp.lsp_client import frame
from tests.lsp.transport.listeners import isolated_environment
from tests.processes import TIMEOUT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Python has no Unix sockets there")

GREETING = frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
EXIT = frame({"jsonrpc": "2.0", "method": "exit"})


@contextmanager
def connected(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The running command, and the server's end of its connection."""
    path = tmp_path / "server.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        listener.settimeout(TIMEOUT)
        command = [sys.executable, "-m", "spd_lsp", "connect", str(path)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, env=isolated_environment(tmp_path), **pipes) as editor:
            wire, _ = listener.accept()
            with wire:
                yield editor, wire
                editor.wait(TIMEOUT)


def type_in(editor: subprocess.Popen[bytes], wire: socket.socket, data: bytes) -> None:
    """Send something to the server, and wait until it is there."""
    assert editor.stdin
    editor.stdin.write(data)
    editor.stdin.flush()
    assert wire.recv(len(data), socket.MSG_WAITALL) == data


def test_a_server_that_dies_is_named_and_ends_it_with_1(tmp_path: Path):
    with connected(tmp_path) as (editor, wire):
        type_in(editor, wire, GREETING)
        wire.close()
        assert editor.wait(TIMEOUT) == 1
        assert editor.stderr
        told = editor.stderr.read().decode()
    assert f"the server at {tmp_path / 'server.sock'} closed the connection" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("says_exit", [True, False])
def test_an_editor_that_exits_or_leaves_ends_it_with_0(tmp_path: Path, says_exit: bool):
    with connected(tmp_path) as (editor, wire):
        type_in(editor, wire, GREETING)
        if says_exit:
            type_in(editor, wire, EXIT)
        else:
            assert editor.stdin
            editor.stdin.close()
            assert wire.recv(1) == b""
        wire.close()
        assert editor.wait(TIMEOUT) == 0

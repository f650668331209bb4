"""Only the user's own editors are served, and an editor sends its text only to the user's own server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ngram_builders.errors import UserError
from spd_lsp.lsp.transport.access import connect_to_socket, private_socket
from tests.lsp.transport.listeners import (
    OTHER_USER,
    as_other_user,
    connected,
    isolated_environment,
    run_listener,
)
from tests.processes import TIMEOUT

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix sockets and users are POSIX's")
as_root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can be another user")

# Another user's editor, which prints what it receives.
FORGED_EDITOR = """
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(60)
try:
    connection.connect(sys.argv[1])
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}).encode()
    connection.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    print(connection.recv(65536).decode())
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users may enter."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.slow
@as_root
def test_another_user_is_answered_nothing(public_folder: Path):
    with run_listener(public_folder) as server:
        assert as_other_user(FORGED_EDITOR, server.path).stdout == "PermissionError\n"


def test_socket_and_folder_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        path = tmp_path / "new" / "deep" / "server.sock"
        private_socket(path).close()
    finally:
        os.umask(before)
    assert [entry.stat().st_mode & 0o777 for entry in (path.parent, path)] == [0o700, 0o600]


def test_no_socket_is_created_in_a_folder_that_others_may_enter(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match="chmod 700"):
        private_socket(tmp_path / "server.sock")
    assert list(tmp_path.iterdir()) == []


def test_a_stale_socket_is_replaced_but_not_one_in_use_or_a_file(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "server.sock"
    private_socket(path).close()  # as a killed server leaves it
    with private_socket(path):
        with pytest.raises(UserError, match="another server listens"):
            private_socket(path)
        connect_to_socket(path).close()
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(UserError, match="cannot listen at"):
        private_socket(file)
    assert file.read_text() == "kept"


@as_root
def test_an_editor_refuses_another_users_socket(public_folder: Path):
    theirs = public_folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER_USER, OTHER_USER)
    bound = as_other_user("s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])", str(theirs / "server.sock"))
    assert bound.returncode == 0, bound.stderr
    for path in (theirs / "server.sock", theirs / "link"):
        with pytest.raises(UserError, match=f"owned by user {OTHER_USER}"):
            connect_to_socket(path)
    public_folder.chmod(0o700)
    private_socket(public_folder / "own.sock").close()
    public_folder.chmod(0o777)
    with pytest.raises(UserError, match="a folder that only you can write to"):
        connect_to_socket(public_folder / "own.sock")


async def test_connect_check_only_checks_that_the_server_is_there(tmp_path):
    with run_listener(tmp_path) as server:
        command = [sys.executable, "-m", "spd_lsp", "connect", "--check", server.path]
        pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": TIMEOUT}
        check = subprocess.run(command, env=isolated_environment(tmp_path), check=False, **pipes)
        assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")
        async with connected(server):
            pass
    check = subprocess.run(command, env=isolated_environment(tmp_path), check=False, **pipes)
    assert check.returncode == 1
    assert b"start one with" in check.stderr

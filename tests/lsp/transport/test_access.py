"""Only the user's own editors are served, and an editor sends its text only to the user's own server."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.lsp.server import create_server
from spd_lsp.lsp.transport import token_proof
from spd_lsp.lsp.transport.access import SocketEndpoint, TcpEndpoint, bind, connect_to_port, connect_to_socket
from spd_lsp.lsp.transport.addresses import TcpAddress, parse_address, parse_tcp_address
from spd_lsp.lsp.transport.serve import Sessions
from spd_lsp.lsp.transport.token_proof import default_token_file, load_or_create_token, load_token
from tests.lsp.lsp_client import FakeCompleter, frame
from tests.lsp.transport.listeners import (
    OTHER_USER,
    as_other_user,
    connected,
    editor_at,
    isolated_environment,
    labels,
    run_listener,
)
from tests.processes import TIMEOUT, free_port

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix sockets and users are POSIX's")
as_root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can be another user")

PRIVATE = "quarterly_figures = fetch_ledger(undisclosed_account)"

# Another user's editor: it claims to have a private file open, and prints the completions it receives.
FORGED_EDITOR = """
import itertools
address, uri = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX if "/" in address else socket.AF_INET)
connection.settimeout(60)
try:
    connection.connect(address if "/" in address else ("127.0.0.1", int(address.split(":")[1])))
    def send(**message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        connection.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    send(id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": {}})
    send(method="initialized", params={})
    text = "quarterly_"
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    send(method="textDocument/didOpen", params={"textDocument": document})
    for number in range(2, 12):
        cursor = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": len(text)}}
        send(id=number, method="textDocument/completion", params={**cursor, "context": {"triggerKind": 1}})
        time.sleep(0.3)
    send(id=99, method="shutdown", params=None)
    while data := connection.recv(65536):
        print(data.decode(), flush=True)
        if '"id": 99' in data.decode() or '"id":99' in data.decode():
            break
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users may enter."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def ledger(public_folder: Path) -> Path:
    """A file in a repository that only its owner can read, and that has an n-gram table."""
    folder = public_folder / "ledger"
    folder.mkdir(mode=0o700)
    (folder / "figures.py").write_text(f"{PRIVATE}\n" * 20, encoding="utf-8")
    command = ["--data-dir", str(public_folder / "data"), "build-ngrams", str(folder)]
    assert CliRunner().invoke(main, command).exit_code == 0
    return folder / "private.py"


@pytest.mark.slow
@as_root
@pytest.mark.parametrize("tcp", [True, False], ids=["port", "socket"])
async def test_a_user_without_read_access_gets_no_line_of_a_private_repository(
    ledger: Path, public_folder: Path, tcp: bool
):
    with run_listener(public_folder, tcp=tcp) as server:
        async with editor_at(server) as own:
            own.open("quarterly_", ledger.as_uri())
            assert any("figures" in label for label in await labels(own, ledger.as_uri(), 0, 10))
        if not tcp:  # as if their permissions had been widened by mistake
            (public_folder / "private").chmod(0o755)
            Path(server.address).chmod(0o666)
        forged = await asyncio.to_thread(as_other_user, FORGED_EDITOR, server.address, ledger.as_uri())
    assert forged.returncode == 0, forged.stderr
    assert forged.stdout in ("", "ConnectionResetError\n", "BrokenPipeError\n")


@as_root
def test_another_user_cannot_even_connect_to_the_socket(public_folder: Path):
    with run_listener(public_folder) as server:
        assert as_other_user(FORGED_EDITOR, server.address, "file:///x.py").stdout == "PermissionError\n"


async def test_socket_and_folder_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        path = tmp_path / "new" / "deep" / "server.sock"
        async with await SocketEndpoint(path, is_default=False).open(hang_up):
            modes = [entry.stat().st_mode & 0o777 for entry in (path.parent.parent, path.parent, path)]
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert modes == [0o700, 0o700, 0o600]


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_no_socket_is_created_in_a_folder_that_others_may_enter(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match="chmod 700"):
        await SocketEndpoint(tmp_path / "server.sock", is_default=False).open(hang_up)
    assert list(tmp_path.iterdir()) == []


@as_root
async def test_no_socket_is_created_in_a_folder_of_another_user(tmp_path):
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", OTHER_USER, OTHER_USER)
    with pytest.raises(UserError, match=f"owned by user {OTHER_USER}"):
        await SocketEndpoint(tmp_path / "theirs" / "server.sock", is_default=False).open(hang_up)


async def test_a_stale_socket_is_replaced_but_not_one_in_use_or_a_file(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "server.sock"
    bind(path).close()  # as a killed server leaves it
    async with await SocketEndpoint(path, is_default=False).open(hang_up):
        with pytest.raises(UserError, match="another server listens"):
            await SocketEndpoint(path, is_default=False).open(hang_up)
        connect_to_socket(path).close()
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(UserError, match="it is a file"):
        await SocketEndpoint(file, is_default=False).open(hang_up)
    assert file.read_text() == "kept"


SERVE = """
import asyncio, sys
from pathlib import Path
from spd_lsp.lsp.transport.access import SocketEndpoint
async def main():
    async def serve(reader, writer):
        writer.close()
    async with await SocketEndpoint(Path(sys.argv[1]), is_default=False).open(serve):
        print("run_listener", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def test_of_servers_started_at_the_same_time_one_gets_the_socket(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "server.sock"
    bind(path).close()
    command = [sys.executable, "-c", SERVE, str(path)]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(command, env=isolated_environment(tmp_path), stdout=pipe, stderr=pipe, text=True)
        for _ in range(4)
    ]
    failed = [process.stderr for process in started if process.stdout and not process.stdout.readline()]
    connect_to_socket(path).close()
    assert len(failed) == 3
    assert all("another server listens" in stream.read() for stream in failed if stream)
    for process in started:
        process.kill()
        process.communicate()


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
    public_folder.chmod(0o777)
    bind(public_folder / "own.sock").close()
    with pytest.raises(UserError, match="chmod go-w"):
        connect_to_socket(public_folder / "own.sock")


@contextmanager
def impostor(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Listen on a port as another program would: send the answer and record what is received."""
    received: list[bytes] = []

    def accept() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(answer)
            connection.settimeout(TIMEOUT)
            with suppress(ConnectionResetError):  # the client did not read the whole answer
                while data := connection.recv(65536):
                    received.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", received
        thread.join()


HELLO = frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"secret": "what is typed"}})


@pytest.mark.parametrize("answer", [b"", b"no", bytes(64), b"Content-Length: 2\r\n\r\n{}" * 9], ids=str)
def test_a_program_that_took_the_port_first_learns_nothing(tmp_path, monkeypatch, answer: bytes):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg_state_home"))
    with impostor(answer) as (address, received):
        load_or_create_token(default_token_file(parse_tcp_address(address)))
        command = [sys.executable, "-c", CONNECT_WITH_SHORT_TIMEOUT, "connect", address]
        done = subprocess.run(
            command,
            input=HELLO,
            capture_output=True,
            env=isolated_environment(tmp_path),
            check=False,
            timeout=TIMEOUT,
        )
    assert done.returncode == 1
    assert b"nothing was sent to it" in done.stderr
    assert done.stdout == b""
    assert len(b"".join(received)) == 48 and b"".join(received).startswith(b"spd-lsp proof 1\n")


# The command with a short timeout, since an incomplete answer is waited for.
CONNECT_WITH_SHORT_TIMEOUT = (
    "from spd_lsp import cli; from spd_lsp.lsp.transport import token_proof; "
    "token_proof.HANDSHAKE_TIMEOUT = 1.0; cli.main()"
)


def test_a_recorded_proof_cannot_be_replayed(tmp_path):
    """A recording of one handshake does not let anybody play either side of another."""
    file = tmp_path / "token"
    token = load_or_create_token(file)
    nonce = secrets.token_bytes(32)
    recorded = nonce + hmac.digest(token, b"server" + secrets.token_bytes(32) + nonce, "sha256")
    with impostor(recorded) as (address, received), pytest.raises(UserError, match="nothing was sent"):
        connect_to_port(parse_tcp_address(address), file)
    assert len(b"".join(received)) == 48


async def endpoint(tmp_path: Path) -> tuple[asyncio.AbstractServer, TcpAddress, Path]:
    """Serve sessions on a port in this process."""
    port, file = TcpAddress("127.0.0.1", free_port()), tmp_path / "state" / "token"
    tcp = TcpEndpoint(port, file)
    sessions = Sessions(tcp, lambda: create_server(lambda settings, report: FakeCompleter()), 9)
    return await tcp.open(sessions.serve), port, file


async def exchange(port: TcpAddress, *sent: bytes) -> bytes:
    """Send bytes; return all that the server sends before it hangs up."""
    reader, writer = await asyncio.open_connection(port.host, port.port)
    writer.write(b"".join(sent))
    try:
        return await asyncio.wait_for(reader.read(), TIMEOUT)
    finally:
        writer.close()


async def test_a_client_without_proof_gets_no_useful_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(token_proof, "HANDSHAKE_TIMEOUT", 1.0)
    server, port, file = await endpoint(tmp_path)
    async with server:
        token = load_token(file, "")
        greeting, nonce = b"spd-lsp proof 1\n", bytes(32)
        assert await exchange(port, b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", HELLO) == b""
        assert await exchange(port, HELLO) == b""
        assert await exchange(port, b"spd") == b"", "the greeting was not completed in time"
        for claim in (token[:32], bytes(32), hmac.digest(token, b"editor" + nonce, "sha256")):
            answer = await exchange(port, greeting, nonce, claim, HELLO)
            assert len(answer) == 64, "the server's own proof and nothing else"
            assert token not in answer


async def test_the_handshake_does_not_reveal_the_token(tmp_path):
    """Both directions, recorded between a real client and a real server."""
    server, port, file = await endpoint(tmp_path)
    recorded: list[bytes] = []
    closed = asyncio.Event()

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(port.host, port.port)

        async def relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                recorded.append(data)
                target.write(data)
            target.close()

        await asyncio.gather(relay(reader, server_writer), relay(server_reader, writer))
        closed.set()

    async with server, await asyncio.start_server(record, "127.0.0.1", 0) as proxy:
        number = proxy.sockets[0].getsockname()[1]
        connection = await asyncio.to_thread(connect_to_port, TcpAddress("127.0.0.1", number), file)
        connection.sendall(HELLO)
        connection.setblocking(False)
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 65536), TIMEOUT)
        connection.close()
        await asyncio.wait_for(closed.wait(), TIMEOUT)
    assert b'"id": 1' in answer or b'"id":1' in answer
    token = file.read_bytes().strip()
    assert token not in b"".join(recorded) and bytes.fromhex(token.decode()) not in b"".join(recorded)


async def test_silent_clients_keep_nobody_out(tmp_path):
    """However many there are; the oldest of them are dropped."""
    server, port, file = await endpoint(tmp_path)
    async with server:
        idle = [await asyncio.open_connection(port.host, port.port) for _ in range(100)]
        (await asyncio.to_thread(connect_to_port, port, file)).close()
        oldest = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in idle[:30])), TIMEOUT)
        assert oldest == [b""] * 30
    for _, writer in idle:
        writer.close()


async def test_silent_clients_are_dropped_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(token_proof, "HANDSHAKE_TIMEOUT", 0.5)
    server, port, _ = await endpoint(tmp_path)
    async with server:
        reader, writer = await asyncio.open_connection(port.host, port.port)
        assert await asyncio.wait_for(reader.read(), TIMEOUT) == b""
    writer.close()


def test_a_token_is_created_once_and_private(tmp_path):
    before = os.umask(0)
    try:
        file = tmp_path / "state" / "token"
        token = load_or_create_token(file)
    finally:
        os.umask(before)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(bytes.fromhex(token.decode())) == 32
    assert load_or_create_token(file) == token, "a copy elsewhere stays valid"
    assert load_or_create_token(tmp_path / "state" / "another") != token


def test_a_token_that_others_could_read_or_write_is_refused(tmp_path):
    file = tmp_path / "token"
    load_or_create_token(file)
    file.chmod(0o644)
    with pytest.raises(UserError, match="mode 644"):
        load_or_create_token(file)
    file.chmod(0o600)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(UserError, match="cannot read the token"):
        load_token(tmp_path / "link", "")
    (tmp_path / "short").write_text("abc")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(UserError, match="64 hexadecimal digits"):
        load_token(tmp_path / "short", "")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UserError, match="not a regular file"):
        load_token(tmp_path / "pipe", "")


@as_root
def test_a_token_owned_by_another_user_is_refused(tmp_path):
    file = tmp_path / "token"
    load_or_create_token(file)
    os.chown(file, OTHER_USER, OTHER_USER)
    with pytest.raises(UserError, match=f"owned by user {OTHER_USER}"):
        load_token(file, "")


def test_each_port_has_its_own_token():
    """So that a server on one port cannot pass for the server on another."""
    ports = [
        TcpAddress("127.0.0.1", 1),
        TcpAddress("127.0.0.1", 2),
        TcpAddress("::1", 1),
        TcpAddress("10.0.0.1", 1),
    ]
    assert len({default_token_file(port) for port in ports}) == 4


@pytest.mark.parametrize("address", ["0.0.0.0:2087", "10.0.0.1:2087", "gpu-box:2087", "[::]:2087"])
@pytest.mark.parametrize("command", [["serve", "--tcp"], ["connect"]])
def test_only_loopback_addresses_unless_the_user_says_unencrypted(command: list[str], address: str):
    result = CliRunner().invoke(main, [*command, address])
    assert result.exit_code == 1
    assert "unencrypted" in result.output and "ssh -L" in result.output


def test_a_port_open_to_the_network_still_requires_the_token(tmp_path):
    address = f"0.0.0.0:{free_port()}"
    command = [sys.executable, "-m", "spd_lsp", "serve", "--tcp", address, "--unencrypted"]
    environment = isolated_environment(tmp_path)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stderr and "unencrypted" in child.stderr.readline()
        with socket.create_connection(("127.0.0.1", int(address.split(":")[1])), TIMEOUT) as connection:
            connection.sendall(HELLO)
            with suppress(ConnectionResetError):  # the server may hang up before it has read everything
                assert connection.recv(1) == b""
        child.kill()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:2087", TcpAddress("127.0.0.1", 2087)),
        (":2087", TcpAddress("127.0.0.1", 2087)),
        ("localhost:2087", TcpAddress("127.0.0.1", 2087)),
        ("[::1]:2087", TcpAddress("::1", 2087)),
        ("/run/a:1/server.sock", Path("/run/a:1/server.sock")),
        ("server.sock", Path("server.sock")),
        ("~/server.sock", Path.home() / "server.sock"),
    ],
)
def test_an_address_is_a_port_or_a_path(text: str, address: TcpAddress | Path):
    assert parse_address(text) == address


async def test_connect_check_only_checks_that_the_server_is_there(tmp_path):
    with run_listener(tmp_path, tcp=True) as server:
        command = [sys.executable, "-m", "spd_lsp", "connect", "--check", server.address]
        pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": TIMEOUT}
        check = subprocess.run(command, env=isolated_environment(tmp_path), check=False, **pipes)
        assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")
        async with connected(server):
            pass
    check = subprocess.run(command, env=isolated_environment(tmp_path), check=False, **pipes)
    assert check.returncode == 1
    assert b"start one there" in check.stderr

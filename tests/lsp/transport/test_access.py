"""Who may come in: the user's own editors, nobody else; and no editor tells its text to what is not the server."""

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
from tests.lsp.lsp_client import PATIENCE, FakeCompleter, frame
from tests.lsp.transport.listeners import (
    OTHER_USER,
    as_other_user,
    connected,
    editor_at,
    free_port,
    labels,
    listening,
    surroundings,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix sockets and users are POSIX's")
as_root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can be another user")

PRIVATE = "quarterly_figures = fetch_ledger(undisclosed_account)"

# Another user's editor: it claims that a private file is open in it, and prints what it is offered there.
CLAIM = """
import itertools
address, uri = sys.argv[1:]
wire = socket.socket(socket.AF_UNIX if "/" in address else socket.AF_INET)
wire.settimeout(60)
try:
    wire.connect(address if "/" in address else ("127.0.0.1", int(address.split(":")[1])))
    def send(**message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        wire.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    send(id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": {}})
    send(method="initialized", params={})
    text = "quarterly_fig"
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    send(method="textDocument/didOpen", params={"textDocument": document})
    for number in range(2, 12):
        place = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": len(text)}}
        send(id=number, method="textDocument/completion", params={**place, "context": {"triggerKind": 1}})
        time.sleep(0.3)
    send(id=99, method="shutdown", params=None)
    while data := wire.recv(65536):
        print(data.decode(), flush=True)
        if '"id": 99' in data.decode() or '"id":99' in data.decode():
            break
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users may enter."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def ledger(reachable: Path) -> Path:
    """A repository that only its owner can read, and whose n-grams the owner has counted."""
    folder = reachable / "ledger"
    folder.mkdir(mode=0o700)
    (folder / "figures.py").write_text(f"{PRIVATE}\n" * 20, encoding="utf-8")
    command = ["--data-dir", str(reachable / "data"), "build-ngrams", str(folder)]
    assert CliRunner().invoke(main, command).exit_code == 0
    return folder / "private.py"


@pytest.mark.slow
@as_root
@pytest.mark.parametrize("tcp", [True, False], ids=["port", "socket"])
async def test_a_user_without_read_access_gets_no_line_of_a_private_repository(
    ledger: Path, reachable: Path, tcp: bool
):
    with listening(reachable, tcp=tcp) as server:
        async with editor_at(server) as own:
            own.open("quarterly_fig", ledger.as_uri())
            assert any("ures" in label for label in await labels(own, ledger.as_uri(), 0, 13))
        if not tcp:  # as if the folder and the socket had been opened by mistake
            (reachable / "private").chmod(0o755)
            Path(server.address).chmod(0o666)
        said = await asyncio.to_thread(as_other_user, CLAIM, server.address, ledger.as_uri())
    assert said.returncode == 0, said.stderr
    assert said.stdout in ("", "ConnectionResetError\n", "BrokenPipeError\n")


@as_root
def test_another_user_does_not_even_reach_the_socket(reachable: Path):
    with listening(reachable) as server:
        assert as_other_user(CLAIM, server.address, "file:///x.py").stdout == "PermissionError\n"


async def test_socket_and_folder_are_their_owners_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        path = tmp_path / "new" / "deep" / "server.sock"
        async with await SocketEndpoint(path, is_default=False).open(ignore):
            modes = [one.stat().st_mode & 0o777 for one in (path.parent.parent, path.parent, path)]
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert modes == [0o700, 0o700, 0o600]


async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_a_folder_that_others_may_enter_holds_no_socket(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match="chmod 700"):
        await SocketEndpoint(tmp_path / "server.sock", is_default=False).open(ignore)
    assert list(tmp_path.iterdir()) == []


@as_root
async def test_a_folder_of_someone_else_holds_no_socket(tmp_path):
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", OTHER_USER, OTHER_USER)
    with pytest.raises(UserError, match=f"owned by user {OTHER_USER}"):
        await SocketEndpoint(tmp_path / "theirs" / "server.sock", is_default=False).open(ignore)


async def test_a_dead_socket_is_replaced_a_live_one_and_a_file_are_not(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "server.sock"
    bind(path).close()  # a server that was killed leaves it
    async with await SocketEndpoint(path, is_default=False).open(ignore):
        with pytest.raises(UserError, match="another server listens"):
            await SocketEndpoint(path, is_default=False).open(ignore)
        connect_to_socket(path).close()
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(UserError, match="it is a file"):
        await SocketEndpoint(file, is_default=False).open(ignore)
    assert file.read_text() == "kept"


SERVE = """
import asyncio, sys
from pathlib import Path
from spd_lsp.lsp.transport.access import SocketEndpoint
async def main():
    async def serve(reader, writer):
        writer.close()
    async with await SocketEndpoint(Path(sys.argv[1]), is_default=False).open(serve):
        print("listening", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def test_of_servers_that_start_at_the_same_time_one_has_the_socket(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "server.sock"
    bind(path).close()
    command = [sys.executable, "-c", SERVE, str(path)]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(command, env=surroundings(tmp_path), stdout=pipe, stderr=pipe, text=True)
        for _ in range(4)
    ]
    lost = [process.stderr for process in started if process.stdout and not process.stdout.readline()]
    connect_to_socket(path).close()
    assert len(lost) == 3
    assert all("another server listens" in stream.read() for stream in lost if stream)
    for process in started:
        process.kill()
        process.communicate()


@as_root
def test_an_editor_says_nothing_at_another_users_socket(reachable: Path):
    theirs = reachable / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER_USER, OTHER_USER)
    said = as_other_user("s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])", str(theirs / "server.sock"))
    assert said.returncode == 0, said.stderr
    for path in (theirs / "server.sock", theirs / "link"):
        with pytest.raises(UserError, match=f"owned by user {OTHER_USER}"):
            connect_to_socket(path)
    reachable.chmod(0o777)
    bind(reachable / "own.sock").close()
    with pytest.raises(UserError, match="chmod go-w"):
        connect_to_socket(reachable / "own.sock")


@contextmanager
def impostor(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Who took a port first: answers that, and notes all that is said to it."""
    heard: list[bytes] = []

    def take() -> None:
        wire, _ = listener.accept()
        with wire:
            wire.sendall(answer)
            wire.settimeout(PATIENCE)
            with suppress(ConnectionResetError):  # not all of the answer was wanted
                while data := wire.recv(65536):
                    heard.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=take)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
        thread.join()


HELLO = frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"secret": "what is typed"}})


@pytest.mark.parametrize("answer", [b"", b"no", bytes(64), b"Content-Length: 2\r\n\r\n{}" * 9], ids=str)
def test_who_took_the_port_first_learns_nothing_of_the_editor(tmp_path, monkeypatch, answer: bytes):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg_state_home"))
    with impostor(answer) as (address, heard):
        load_or_create_token(default_token_file(parse_tcp_address(address)))
        command = [sys.executable, "-c", QUICK, "connect", address]
        done = subprocess.run(
            command, input=HELLO, capture_output=True, env=surroundings(tmp_path), check=False, timeout=PATIENCE
        )
    assert done.returncode == 1
    assert b"nothing was sent to it" in done.stderr
    assert done.stdout == b""
    assert len(b"".join(heard)) == 48 and b"".join(heard).startswith(b"spd-lsp proof 1\n")


# The command with less patience: who answers too little is waited for.
QUICK = (
    "from spd_lsp import cli; from spd_lsp.lsp.transport import token_proof; "
    "token_proof.HANDSHAKE_TIMEOUT = 1.0; cli.main()"
)


def test_a_proof_that_was_overheard_serves_nobody_twice(tmp_path):
    """Whoever has recorded one conversation cannot play either end of another."""
    file = tmp_path / "token"
    token = load_or_create_token(file)
    nonce = secrets.token_bytes(32)
    recorded = nonce + hmac.digest(token, b"server" + secrets.token_bytes(32) + nonce, "sha256")
    with impostor(recorded) as (address, heard), pytest.raises(UserError, match="nothing was sent"):
        connect_to_port(parse_tcp_address(address), file)
    assert len(b"".join(heard)) == 48


async def endpoint(tmp_path: Path) -> tuple[asyncio.AbstractServer, TcpAddress, Path]:
    """A port with sessions behind it, in this process."""
    port, file = TcpAddress("127.0.0.1", free_port()), tmp_path / "state" / "token"
    entry = TcpEndpoint(port, file)
    sessions = Sessions(entry, lambda: create_server(lambda settings, report: FakeCompleter()), 9)
    return await entry.open(sessions.serve), port, file


async def exchange(port: TcpAddress, *said: bytes) -> bytes:
    """Everything that is answered until the server hangs up."""
    reader, writer = await asyncio.open_connection(port.host, port.port)
    writer.write(b"".join(said))
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


async def test_who_does_not_prove_itself_is_answered_nothing_that_helps(tmp_path, monkeypatch):
    monkeypatch.setattr(token_proof, "HANDSHAKE_TIMEOUT", 1.0)
    server, port, file = await endpoint(tmp_path)
    async with server:
        token = load_token(file, "")
        greeting, nonce = b"spd-lsp proof 1\n", bytes(32)
        assert await exchange(port, b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", HELLO) == b""
        assert await exchange(port, HELLO) == b""
        assert await exchange(port, b"spd") == b"", "too little in too long a time"
        for claim in (token[:32], bytes(32), hmac.digest(token, b"editor" + nonce, "sha256")):
            told = await exchange(port, greeting, nonce, claim, HELLO)
            assert len(told) == 64, "its own proof, and nothing after the other's"
            assert token not in told


async def test_what_an_editor_proves_does_not_hold_the_token(tmp_path):
    """Both directions, recorded between a real editor's end and a real server's."""
    server, port, file = await endpoint(tmp_path)
    passed: list[bytes] = []
    over = asyncio.Event()

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        others = await asyncio.open_connection(port.host, port.port)

        async def relay(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
            while data := await one.read(65536):
                passed.append(data)
                other.write(data)
            other.close()

        await asyncio.gather(relay(reader, others[1]), relay(others[0], writer))
        over.set()

    async with server, await asyncio.start_server(record, "127.0.0.1", 0) as between:
        number = between.sockets[0].getsockname()[1]
        wire = await asyncio.to_thread(connect_to_port, TcpAddress("127.0.0.1", number), file)
        wire.sendall(HELLO)
        wire.setblocking(False)
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(wire, 65536), PATIENCE)
        wire.close()
        await asyncio.wait_for(over.wait(), PATIENCE)
    assert b'"id": 1' in answer or b'"id":1' in answer
    token = file.read_bytes().strip()
    assert token not in b"".join(passed) and bytes.fromhex(token.decode()) not in b"".join(passed)


async def test_many_strangers_keep_nobody_out_for_longer_than_they_are_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(token_proof, "HANDSHAKE_TIMEOUT", 1.0)
    server, port, file = await endpoint(tmp_path)
    async with server:
        idle = [await asyncio.open_connection(port.host, port.port) for _ in range(70)]
        ended = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in idle)), PATIENCE)
        assert ended == [b""] * 70
        (await asyncio.to_thread(connect_to_port, port, file)).close()
    for _, writer in idle:
        writer.close()


def test_a_token_is_made_once_for_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        file = tmp_path / "state" / "token"
        token = load_or_create_token(file)
    finally:
        os.umask(before)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(bytes.fromhex(token.decode())) == 32
    assert load_or_create_token(file) == token, "a copy of it elsewhere stays good"
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
def test_a_token_that_someone_else_laid_there_is_refused(tmp_path):
    file = tmp_path / "token"
    load_or_create_token(file)
    os.chown(file, OTHER_USER, OTHER_USER)
    with pytest.raises(UserError, match=f"owned by user {OTHER_USER}"):
        load_token(file, "")


def test_each_port_has_a_token_of_its_own():
    """So a server at one port cannot be held up to an editor as the one at another."""
    ports = [
        TcpAddress("127.0.0.1", 1),
        TcpAddress("127.0.0.1", 2),
        TcpAddress("::1", 1),
        TcpAddress("10.0.0.1", 1),
    ]
    assert len({default_token_file(port) for port in ports}) == 4


@pytest.mark.parametrize("address", ["0.0.0.0:2087", "10.0.0.1:2087", "gpu-box:2087", "[::]:2087"])
@pytest.mark.parametrize("command", [["serve", "--tcp"], ["connect"]])
def test_no_port_leaves_this_machine_unless_the_person_says_so(command: list[str], address: str):
    told = CliRunner().invoke(main, [*command, address])
    assert told.exit_code == 1
    assert "unencrypted" in told.output and "ssh -L" in told.output


def test_a_port_beyond_this_machine_still_wants_the_token(tmp_path):
    address = f"0.0.0.0:{free_port()}"
    command = [sys.executable, "-m", "spd_lsp", "serve", "--tcp", address, "--unencrypted"]
    environment = surroundings(tmp_path)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stderr and "unencrypted" in child.stderr.readline()
        with socket.create_connection(("127.0.0.1", int(address.split(":")[1])), PATIENCE) as wire:
            wire.sendall(HELLO)
            with suppress(ConnectionResetError):  # hung up as well, before all that was said is read
                assert wire.recv(1) == b""
        child.kill()


@pytest.mark.parametrize(
    ("text", "meant"),
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
def test_an_address_is_a_port_or_a_path(text: str, meant: TcpAddress | Path):
    assert parse_address(text) == meant


async def test_connect_can_only_look_whether_the_server_is_there(tmp_path):
    with listening(tmp_path, tcp=True) as server:
        command = [sys.executable, "-m", "spd_lsp", "connect", "--check", server.address]
        pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": PATIENCE}
        looked = subprocess.run(command, env=surroundings(tmp_path), check=False, **pipes)
        assert (looked.returncode, looked.stdout, looked.stderr) == (0, b"", b"")
        async with connected(server):
            pass
    looked = subprocess.run(command, env=surroundings(tmp_path), check=False, **pipes)
    assert looked.returncode == 1
    assert b"start one there" in looked.stderr

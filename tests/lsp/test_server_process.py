"""The server as a separate process: its stdout, how it exits, and the shipped model in two editors."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities, make_test_lsp_client

from ngram_builders.registry.registry import Registry
from ngram_builders.table.format import TableSummary
from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER
from tests.lsp.lsp_client import Editor, at, edit, until
from tests.ngram_builders.reference import write_texts
from tests.processes import TIMEOUT

ROOT = Path(__file__).parents[2]
COMPLETION = "textDocument/completion"

# A loader that prints wherever it can, and a completer that never ends by itself.
NOISY = """
import os, sys, time
from spd_lsp.lsp.transport import serve as listening
from spd_lsp.lsp import server

class Endless:
    def update_documents(self, news, asked=""):
        pass

    def run_idle_work(self, seconds):
        return False

    def complete(self, *question, check, **rest):
        print("code on stdout", flush=True)
        os.write(2, b"decoding" + bytes([10]))
        while True:
            check()
            time.sleep(0.001)

def load(settings, report):
    print("noise", flush=True)
    os.write(1, b"raw noise")
    os.system("echo noise of a child")
    return Endless()

made = server.create_server(load)
sys.exit(listening.serve_stdio(made, verbose=2))
"""


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Editor]]:
    """A server process and an editor at its pipes."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, **pipes)
    assert child.stdin and child.stdout
    editor = Editor(child.stdout, child.stdin)
    try:
        yield child, editor
    finally:
        editor.listening.cancel()
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def end(child: asyncio.subprocess.Process) -> int:
    return await asyncio.wait_for(child.wait(), TIMEOUT)


async def decoding(child: asyncio.subprocess.Process, editor: Editor) -> str:
    """Wait until the endless completer runs; what was on stderr so far."""
    await editor.start()
    editor.open("secret = \n")
    editor.send_request(COMPLETION, at(0, 9))
    assert child.stderr
    return (await asyncio.wait_for(child.stderr.readuntil(b"decoding"), TIMEOUT)).decode()


async def test_only_the_protocol_is_on_stdout_and_no_code_in_the_log():
    async with process("-c", NOISY) as (child, editor):
        told = await decoding(child, editor)
        assert "noise" in told and "raw noise" in told and "noise of a child" in told
        assert (await editor.status())["busy"] is True  # every frame so far was well formed
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0
        assert child.stderr
        assert "secret" not in told + (await child.stderr.read()).decode()


async def test_shutdown_and_exit_end_with_0_in_the_middle_of_a_decode():
    async with process("-c", NOISY) as (child, editor):
        await decoding(child, editor)
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders")
async def test_exit_ends_a_server_whose_model_is_read_for_ever(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    stuck = NOISY.replace('print("noise", flush=True)', f"open({str(tmp_path / 'pipe')!r})")
    async with process("-c", stuck) as (child, editor):
        await editor.start()
        assert (await editor.status())["kind"] == "loading"
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0


async def test_exit_without_shutdown_ends_with_1():
    async with process("-c", NOISY) as (child, editor):
        await decoding(child, editor)
        editor.notify("exit")
        assert await end(child) == 1


async def test_the_end_of_input_ends_the_server_in_the_middle_of_a_decode():
    async with process("-c", NOISY) as (child, editor):
        await decoding(child, editor)
        assert child.stdin
        child.stdin.close()
        assert await end(child) == 1
        assert child.stderr
        assert "Traceback" not in (await child.stderr.read()).decode()


async def test_a_vanished_client_leaves_an_empty_log():
    async with process("-c", NOISY) as (child, editor):
        await decoding(child, editor)
        editor.listening.cancel()
        assert child.stdin and child.stderr
        child._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        editor.send_request("spd-lsp/status")
        child.stdin.close()
        assert await end(child) == 1
        assert (await child.stderr.read()).strip() == b""


async def test_leaving_before_the_first_configuration_has_come_leaves_an_empty_log():
    silent = NOISY.replace('os.system("echo noise of a child")', "").replace("verbose=2", "verbose=0")
    silent = silent.replace('os.write(1, b"raw noise")', "").replace('print("noise", flush=True)', "")
    async with process("-c", silent) as (child, editor):
        editor.unanswered = {"workspace/configuration"}
        await editor.start({"workspace": {"configuration": True}})
        await until(lambda: editor.received("workspace/configuration"))
        editor.notify("exit")
        assert await end(child) == 1
        assert child.stderr
        assert (await child.stderr.read()).decode() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
async def test_an_interrupt_ends_the_server_at_once():
    async with process("-c", NOISY) as (child, editor):
        await decoding(child, editor)
        child.send_signal(signal.SIGINT)
        assert await end(child) == -signal.SIGINT


async def test_headers_in_lower_case_and_invalid_json_are_answered():
    async with process("-c", NOISY) as (child, editor):
        await editor.start()
        assert child.stdin and child.stderr
        child.stdin.write(b"content-length: 4\r\n\r\n{no}")
        asked = b'{"jsonrpc": "2.0", "id": [1], "method": "spd-lsp/status", "params": null}'
        child.stdin.write(b"content-length: %d\r\n\r\n%s" % (len(asked), asked))
        await editor.status()
        assert editor.error_codes == [-32700, -32600]
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0
        assert "Traceback" not in (await child.stderr.read()).decode()


# A server that also tells how many futures its protocol holds.
COUNTING = NOISY.replace(
    "sys.exit(",
    """
made.feature("test/futures")(lambda params: len(made.protocol._request_futures))
sys.exit(""",
)


async def test_notifications_leave_nothing_behind():
    async with process("-c", COUNTING) as (_, editor):
        await editor.start()
        await editor.ready()
        editor.open("x = \n")
        before = await editor.request("test/futures")
        for version in range(2, 202):
            editor.send(edit("y", 0, 4, 4, version=version))
        assert await editor.request("test/futures") == before


async def test_a_client_that_answers_no_request_still_gets_its_model():
    patient = NOISY.replace("made =", "from spd_lsp.lsp import protocol; protocol.REPLY_TIMEOUT = 1e6\nmade =")
    async with process("-c", patient) as (_, editor):
        wants = {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}
        editor.unanswered = {
            "workspace/configuration",
            "client/registerCapability",
            "window/workDoneProgress/create",
        }
        await editor.start({"workspace": wants, "window": {"workDoneProgress": True}})
        await asyncio.wait_for(editor.ready(), TIMEOUT)
        assert {message["method"] for message in editor.messages if "id" in message} == editor.unanswered


@pytest.mark.parametrize(
    "lost", [b"Content-Type: application/vscode-jsonrpc; charset=utf-8", b"Content-Lenght: 99"]
)
async def test_a_message_without_a_length_ends_the_server_with_the_reason(lost: bytes):
    async with process("-c", NOISY) as (child, editor):
        await editor.start()
        assert child.stdin and child.stderr
        child.stdin.write(lost + b'\r\n\r\n{"jsonrpc": "2.0", "method": "secret"}')
        editor.notify("textDocument/didSave", {"textDocument": {"uri": "file:///a.py"}})
        assert await end(child) == 1
        told = (await child.stderr.read()).decode()
        assert "a session ended: a message has no Content-Length" in told
        assert "secret" not in told and "Traceback" not in told


@pytest.mark.skipif(sys.platform == "win32", reason="elsewhere asking for a process may end it")
async def test_the_server_exits_with_its_editor_while_its_input_is_still_open():
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    async with process("-c", NOISY) as (child, editor):
        await editor.start(processId=parent.pid)
        assert (await editor.status())["kind"] in ("loading", "normal")
        parent.kill()
        await parent.wait()
        assert await end(child) == 1
        assert child.stderr
        assert "has ended" in (await child.stderr.read()).decode()


SERVE = ("-m", "spd_lsp", "serve", "--device", "cpu")


@pytest.mark.skipif(sys.platform == "win32", reason="file names are Unicode there")
async def test_a_file_name_the_locale_cannot_encode_does_not_prevent_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), *SERVE[2:]) as (_, editor):
        await editor.start()
        await editor.ready()
        for uri in ("file:///code/caf%C3%A9.py", "file:///code/%E9.py", "file:///code/app.py"):
            editor.open("import os\n\nprint(os.", uri)
        for uri in ("file:///code/app.py", "file:///code/caf%C3%A9.py", "file:///code/%E9.py"):
            assert (await editor.request(COMPLETION, at(2, 9, uri=uri)))["items"]
        assert not editor.received("window/showMessage")


@pytest.mark.slow
async def test_another_number_of_drafts_applies_at_once_without_reloading_the_model(tmp_path: Path):
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), *SERVE[2:], "-v") as (_, editor):
        await editor.start()
        await editor.ready()
        assert (await editor.status())["message"] == "the model is ready"
        editor.open("import os\n\nprint(os.")
        for drafts in (1, 4):
            editor.notify("workspace/didChangeConfiguration", {"settings": {"spd-lsp": {"drafts": drafts}}})
            answer = await editor.request(COMPLETION, at(2, 9))
            assert len(answer["items"]) == drafts
        told = [m["message"] for m in editor.received("window/logMessage")]
        assert told.count("spd-lsp: the model is loading") == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows lets nobody cut a mapped file short")
@pytest.mark.parametrize("kernel", ["1", "0"])
async def test_a_table_that_is_cut_short_is_named_and_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
):
    """As a sync tool does with the file of a table that serves."""
    monkeypatch.setenv("SPD_LSP_KERNEL", kernel)
    tokens, registry = ModelTokenizer(STARTER), Registry(tmp_path)
    ids = tokens.encode(Path(asyncio.base_events.__file__).read_text(encoding="utf-8"))

    def write(path: Path) -> TableSummary:
        return write_texts(path, [list(ids)], tokens.vocab_size, fingerprint=tokens.fingerprint)

    table = registry.install("team", write).path
    registry.assign_language("python", [("team", 0.3)])
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), *SERVE[2:]) as (child, editor):
        await editor.start()
        await editor.ready()
        editor.open("import os\n\nprint(os.\nself._loop = self._")
        assert (await editor.request(COMPLETION, at(2, 9, 1)))["items"]
        os.truncate(table, 4096)
        warning = f"cannot use n-gram table {table}: it has 4,096 bytes instead of"
        for _ in range(1000):  # tables are looked at between requests
            assert (await editor.request(COMPLETION, at(3, 19, 1)))["items"]
            if warning in str(editor.messages):
                break
            await asyncio.sleep(0.01)
        assert warning in str(editor.messages)
        assert child.returncode is None


def make_client() -> LanguageClient:
    """pytest-lsp's client, which lacks an answer to dynamic registration."""
    client = make_test_lsp_client()

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def register(params: types.RegistrationParams) -> None:
        return None

    return client


COMMAND = [sys.executable, "-m", "spd_lsp", "serve", "--device", "cpu"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest_lsp.fixture(
    config=ClientServerConfig(server_command=COMMAND, server_env=ONE_THREAD, client_factory=make_client),
    params=["visual-studio-code", "neovim"],
)
async def client(request: Any, lsp_client: LanguageClient) -> AsyncIterator[None]:
    """A session with the shipped model, as one of two editors."""
    name = {"neovim": "Neovim", "visual-studio-code": "Visual Studio Code"}[request.param]
    params = types.InitializeParams(
        capabilities=client_capabilities(request.param),
        client_info=types.ClientInfo(name=name),
        root_uri=ROOT.as_uri(),
        initialization_options={"maxTokens": 8, "indexing": "off"},
    )
    lsp_client.set_configuration({"drafts": 2}, section="spd-lsp")
    await lsp_client.initialize_session(params)
    while (await status_of(lsp_client)).kind == "loading":
        await asyncio.sleep(0.1)
    yield
    await lsp_client.shutdown_session()


async def status_of(client: LanguageClient) -> Any:
    return await client.protocol.send_request_async("spd-lsp/status", None)


SOURCE = 'import os\n\n\ndef read(path):\n    """😀"""\n    with open(path) as file:\n        return file.\n'


@pytest.mark.slow
async def test_the_shipped_model_completes(client: LanguageClient):
    uri = "file:///code/reader.py"
    item = types.TextDocumentItem(uri, "python", 1, SOURCE)
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    document, cursor = types.TextDocumentIdentifier(uri), types.Position(6, 20)
    asked = types.CompletionParams(
        document, cursor, context=types.CompletionContext(types.CompletionTriggerKind.Invoked)
    )
    answer = await client.text_document_completion_async(asked)
    assert isinstance(answer, types.CompletionList) and answer.is_incomplete
    assert 1 <= len(answer.items) <= 2
    for offered in answer.items:
        assert isinstance(offered.text_edit, types.TextEdit)
        assert offered.text_edit.range == types.Range(cursor, cursor)
        assert offered.text_edit.new_text.strip()
    ghosts = await client.text_document_inline_completion_async(
        types.InlineCompletionParams(
            context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Invoked),
            text_document=document,
            position=cursor,
        )
    )
    assert isinstance(ghosts, types.InlineCompletionList)
    assert [ghost.insert_text for ghost in ghosts.items] == [i.text_edit.new_text for i in answer.items]
    status = await status_of(client)
    assert status.kind == "normal"
    assert 0 < status.lastPasses <= 8
    assert not client.messages
    await until(lambda: all(reports[-1].kind == "end" for reports in client.progress_reports.values()))
    assert client.progress_reports

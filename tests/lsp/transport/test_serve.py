"""Many editors use one server: each has its own session, they share the model, and none disturbs another."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import urllib.error
import urllib.request
import weakref
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.completion.loading import load_completer
from spd_lsp.lsp.transport.serve import SharedModel
from spd_lsp.models.load import load as open_model
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import at, session, until
from tests.lsp.test_server_process import end, process
from tests.lsp.transport.listeners import (
    COMPLETION,
    connected,
    editor_at,
    isolated_environment,
    labels,
    run_listener,
)
from tests.models.networks import NETWORKS, random_network
from tests.processes import TIMEOUT

CODE = "import argparse\n\nparser = argparse."


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with the bundled model, at the default socket."""
    with run_listener(tmp_path_factory.mktemp("server"), "-v", default=True) as server:
        yield server


@pytest.mark.slow
async def test_editors_at_the_same_time_get_what_one_alone_gets(server):
    async with editor_at(server) as alone:
        alone.open(CODE, "file:///a/alone.py")
        expected = await labels(alone, "file:///a/alone.py", 2, 18)
    assert len(expected) == 3

    async def complete_in(number: int) -> list[str]:
        async with editor_at(server) as editor:
            uri = f"file:///b/{number}.py"
            editor.open(CODE, uri)
            return await labels(editor, uri, 2, 18)

    together = await asyncio.gather(*map(complete_in, range(5)))
    # llama.cpp rounds a batch otherwise than what it reads alone, and the third draft has rivals as likely as it.
    assert [len(found) for found in together] == [3] * 5
    assert [found[:2] for found in together] == [expected[:2]] * 5


async def test_editors_do_not_share_documents(server):
    async with editor_at(server) as one, editor_at(server) as other:
        one.open("very_private_name = 1\n" * 50 + "very_pri", "file:///x.py")
        other.open("very_pri", "file:///x.py")
        assert any("vate_name" in label for label in await labels(one, "file:///x.py", 50, 8))
        assert not any("vate_name" in label for label in await labels(other, "file:///x.py", 0, 8))


async def test_an_editor_that_exits_or_disconnects_ends_only_its_own_session(server):
    async with editor_at(server) as stays:
        stays.open(CODE, "file:///s.py")
        async with editor_at(server) as exits:
            await exits.request("shutdown")
            exits.notify("exit")
            await asyncio.wait_for(exits.listening, TIMEOUT)
        async with editor_at(server) as vanishes:
            vanishes.open(CODE, "file:///v.py")
            vanishes.send_request(COMPLETION, at(2, 18, kind=None, uri="file:///v.py"))
            vanishes.writer.transport.abort()
        assert len(await labels(stays, "file:///s.py", 2, 18)) == 3


@pytest.mark.parametrize("sent", [b"X-Padding: " + b"x" * 1_000_000, b"Content-Length: 9\r\n\r\n["])
async def test_odd_input_ends_its_own_session_alone(server, sent: bytes):
    async with editor_at(server) as stays:
        async with connected(server) as (reader, writer):
            writer.write(sent)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), TIMEOUT) == b""
        stays.open(CODE, "file:///s.py")
        assert len(await labels(stays, "file:///s.py", 2, 18)) == 3
    assert not any("xxxx" in line for line in server.log), "the input is not quoted"


async def test_a_remote_editor_cannot_choose_the_model_or_a_folder(server):
    async with editor_at(server, model="/no/such/model", dataDir="/no/such/folder") as editor:
        assert (await editor.status())["kind"] == "normal"


async def test_connect_finds_the_default_socket_and_forwards_a_session_over_its_pipes(server):
    """Which is all that `ssh HOST spd-lsp connect` runs on the server's machine."""
    async with process("-m", "spd_lsp", "connect", env=isolated_environment(server.folder)) as (child, editor):
        await editor.start_and_load()
        editor.open(CODE, "file:///c.py")
        assert len(await labels(editor, "file:///c.py", 2, 18)) == 3
        await editor.request("shutdown")
        editor.notify("exit")
        assert await end(child) == 0


def get(url: str, **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_metrics_are_served_beside_the_socket_without_a_word_of_code(tmp_path: Path):
    with run_listener(tmp_path, "--metrics", "127.0.0.1:0") as server:
        address = server.wait_for_log("metrics at").split()[-1]
        async with editor_at(server) as editor:
            editor.open("import argparse\nsecret_name = argparse.")
            assert await editor.request(COMPLETION, at(1, 23))
            status, text = get(address)
        counts = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert status == 200 and "secret_name" not in text
        assert (counts["spd_lsp_sessions"], counts["spd_lsp_answers_total"]) == ("1.0", "1.0")
        assert float(counts["spd_lsp_forward_passes_total"]) > 0
        assert sys.platform != "linux" or float(counts["process_resident_memory_bytes"]) > 10_000_000


@pytest.mark.parametrize(
    "options", [("--stdio", "--metrics", "127.0.0.1:0"), ("--socket", "s", "--metrics", "0.0.0.0:0")]
)
def test_metrics_are_for_this_machine_and_belong_to_a_socket(options: tuple[str, ...]):
    refused = CliRunner().invoke(main, ["serve", *options])
    assert refused.exit_code == 1 and ("--socket" in refused.stderr or "other machines" in refused.stderr)


async def test_a_closed_session_frees_its_completer(tmp_path: Path):
    """And does not wait for a collection of garbage: the memory may be a graphics card's."""
    load = partial(load_completer, open_model=SharedModel(open_model).seat)

    async def serve_one() -> weakref.ref[object]:
        async with session(load, Settings(data_dir=str(tmp_path))) as editor:
            await editor.start_and_load()
            editor.open(CODE)
            assert (await editor.request(COMPLETION, at(2, 18)))["items"]
            return weakref.ref(editor.server.worker.completer)

    gc.disable()
    try:
        left = await serve_one()
        await until(lambda: left() is None)
    finally:
        gc.enable()


def test_a_model_is_opened_once_and_again_only_after_a_failure():
    from spd_lsp.models.torch.engine import TransformersEngine

    opened: list[str] = []

    def open_model(folder, device, report):
        opened.append(device)
        if len(opened) == 1:
            raise UserError("no")
        return TransformersEngine(random_network(NETWORKS["llama"]))

    shared = SharedModel(open_model)
    with pytest.raises(UserError):
        shared.seat(Path("m"), "cpu", print)
    first, second = (shared.seat(Path("m"), "cpu", print) for _ in range(2))
    assert opened == ["cpu", "cpu"]
    assert first is not second
    assert first.scheduler is second.scheduler

"""A closed session leaves nothing behind in the running process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lsp.transport.listeners import ROOT, isolated_environment
from tests.processes import TIMEOUT

# Editors come and go one after another; printed is what is then still held, before and after a collection.
ONE_AFTER_ANOTHER = """
import asyncio, gc, json, socket, sys
from collections import Counter
from functools import partial
from pathlib import Path
from spd_lsp.completion.loading import load_completer, open_model
from spd_lsp.lsp.transport.serve import SharedModel, SocketWriter, session
from spd_lsp.lsp.server import create_server
from spd_lsp.settings import Settings
from tests.lsp.transport.listeners import labels
from tests.lsp.lsp_client import Editor

CODE = Path(create_server.__code__.co_filename).read_text() + "\\nimport argparse\\nparser = argparse."
LINE = CODE.count("\\n")
SCHEME = "file" + "://"

def held():
    found = Counter(type(one).__name__ for one in gc.get_objects())
    server = ["Session", "Worker", "LspDocument"]
    completer = ["Completer", "OpenFiles", "ServingTables", "ModelTokenizer"]
    return {name: found[name] for name in [*server, *completer]}

async def held_after_waiting(names, collect):
    for _ in range(600):  # threads and tasks let go of the last session when they get their turn
        collect()
        found = held()
        if not any(found[name] for name in names):
            break
        await asyncio.sleep(0.05)
    return found

async def serve_one(make):
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    serving = asyncio.ensure_future(session(make(), reader, SocketWriter(writer)))
    editor = Editor(*await asyncio.open_connection(sock=ours))
    await editor.start_and_load()
    for number in range(3):
        uri = f"{SCHEME}/code/{number}.py"
        editor.open(CODE, uri)
        assert await labels(editor, uri, LINE, 18)
    await editor.request("shutdown")
    editor.notify("exit")
    await serving
    editor.listening.cancel()
    editor.writer.close()

async def main():
    gc.disable()  # what is counted at once is to be freed by those who let go of it
    load = partial(load_completer, open_model=SharedModel(open_model).seat)
    make = partial(create_server, load, Settings(data_dir=sys.argv[1]))
    for number in range(3):
        await serve_one(make)
    at_once = await held_after_waiting(["Completer"], lambda: None)
    collected = await held_after_waiting(held(), gc.collect)
    print(json.dumps({"at_once": at_once, "collected": collected}))

asyncio.run(main())
"""


@pytest.mark.slow
def test_consecutive_sessions_leak_no_objects(tmp_path: Path):
    command = [sys.executable, "-c", ONE_AFTER_ANOTHER, str(tmp_path / "data")]
    environment = isolated_environment(tmp_path)
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=6 * TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not any(found["collected"].values()), found
    assert not found["at_once"]["Completer"], "which holds the model's memory, and does not wait for a collection"

"""A model server goes away while somebody types, and comes back: over real stdio, with llama.cpp's own server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.lsp.lsp_client import Editor, at
from tests.lsp.test_server_process import COMPLETION, process
from tests.models.model_servers import llama_server
from tests.processes import TIMEOUT

SOURCE = "import argparse\n\nparser = argparse."


async def complete(editor: Editor) -> tuple[list[Any], dict[str, Any]]:
    """What is offered, and then the status."""
    found = await editor.request(COMPLETION, at(2, len(SOURCE.rpartition("\n")[2])))
    return found["items"], await editor.status()


async def test_without_its_server_the_bundled_model_completes_and_the_status_says_so(tmp_path: Path):
    with llama_server() as (address, server):
        serve = ("-m", "spd_lsp", "--data-dir", str(tmp_path), "serve", "--model", address)
        async with process(*serve) as (_, editor):
            await editor.start()
            await editor.ready()
            editor.open(SOURCE)
            items, status = await complete(editor)
            assert items and status["model"] == address and status["lastPasses"] == 0
            assert "superposed drafts need the model in this process" in status["message"]
            assert status["problem"] == ""
            server.kill()
            server.wait()
            items, status = await complete(editor)
            assert items and status["lastPasses"] > 0
            assert f"{address} does not answer" in status["problem"]
            (shown,) = editor.received("window/showMessage")
            assert "the bundled model completes until it does" in shown["message"]
            with llama_server(port=int(address.rpartition(":")[2])):
                async with asyncio.timeout(TIMEOUT):
                    while status["problem"]:
                        items, status = await complete(editor)
                assert items and status["lastPasses"] == 0

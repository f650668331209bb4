"""A GGUF file with the starter's weights: named on the command line, and by an editor over real pipes."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.models.hub import locate
from tests.lsp.lsp_client import at
from tests.lsp.test_server_process import process
from tests.models.llama.gguf_files import write_starter
from tests.models.test_stored import store
from tests.processes import TIMEOUT

TEXT = (
    "import os\n\n\ndef names(folder):\n    found = []\n    for name in os.listdir(folder):\n        found.app\n"
)
URI = "file:///code/app.py"


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    pytest.importorskip("xllamacpp")
    return write_starter(tmp_path_factory.mktemp("starter") / "starter.gguf")


def test_complete_drafts_with_it(starter, tmp_path, monkeypatch):
    (tmp_path / "app.py").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(starter.parent)  # the path may be relative, and without a `./`
    run = ["--data-dir", str(tmp_path / "data"), "complete", f"{tmp_path}/app.py:7:18", "--model", starter.name]
    answer = CliRunner().invoke(main, [*run, "--json"])
    found = json.loads(answer.stdout)
    assert found["completions"][0]["text"].startswith("end(name)")
    assert len(found["completions"]) == 3
    assert found["tokens"] <= found["passes"] <= 2 * found["tokens"]
    assert "starter.gguf in llama.cpp" in answer.stderr


def test_ollamas_own_copy_is_opened_where_it_is(starter, tmp_path, monkeypatch):
    blob = store(tmp_path, "registry.ollama.ai/library/starter/latest", starter.read_bytes())
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    (tmp_path / "app.py").write_text(TEXT, encoding="utf-8")
    place = f"{tmp_path}/app.py:7:18"
    answer = CliRunner().invoke(main, ["complete", place, "--model", "ollama:starter", "--no-ngrams"])
    assert "end(name)" in answer.stdout
    assert locate("ollama:starter") == blob


@pytest.mark.slow
async def test_a_file_cut_short_while_it_is_used_leaves_the_server_running(starter, tmp_path):
    """As by a download that starts again under the same name."""
    used = tmp_path / "used.gguf"
    used.write_bytes(starter.read_bytes())
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), "serve") as (child, editor):
        await editor.start_and_load(initializationOptions={"model": str(used), "indexing": "off"})
        os.truncate(used, 4096)
        editor.open(TEXT)
        items = (await editor.request("textDocument/completion", at(6, 17)))["items"]
        assert any("append(name)" in item["label"] for item in items), items
        await editor.request("shutdown")
        editor.notify("exit")
        assert await asyncio.wait_for(child.wait(), TIMEOUT) == 0

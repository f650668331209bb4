"""Nothing in the working folder, or in a folder opened in an editor, is imported or run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.registry.registry import Registry
from tests.hostile import Trap
from tests.lsp.lsp_client import at
from tests.lsp.test_server_process import process
from tests.processes import TIMEOUT

PROGRAM = [str(Path(sys.executable).with_name("spd-lsp"))]
installed = pytest.mark.skipif(not Path(PROGRAM[0]).exists(), reason="needs spd-lsp beside python")

STARTS = [
    pytest.param(PROGRAM, marks=installed, id="spd-lsp"),
    pytest.param([sys.executable, "-P", "-m", "spd_lsp"], id="python -P -m"),
]


def environment(trap: Trap) -> dict[str, str]:
    """Return the environment of a shell whose PATH names the working folder, as `.` and as an empty entry."""
    path = os.pathsep.join([".", "", os.environ["PATH"]])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, "HOME": str(trap.marks.parent)}


def server(command: list[str], trap: Trap) -> Any:
    """A server that is started in the trap, with its data beside it."""
    program, *arguments = [*command, "--data-dir", str(trap.marks.parent / "data"), "serve"]
    return process(*arguments, program=program, cwd=trap.folder, env=environment(trap))


@pytest.mark.slow
@pytest.mark.parametrize("command", STARTS)
async def test_a_server_completes_and_imports_nothing_of_the_opened_folder(tmp_path: Path, command: list[str]):
    trap = Trap(tmp_path)
    async with server(command, trap) as (_, editor):
        await editor.start_and_load(rootUri=trap.folder.as_uri())
        editor.open("import os\n\nprint(os.", uri=(trap.folder / "app.py").as_uri())
        answer = await editor.request("textDocument/completion", at(2, 9, uri=(trap.folder / "app.py").as_uri()))
        assert answer["items"]
    assert trap.sprung == []


@pytest.mark.slow
@pytest.mark.parametrize("command", STARTS)
async def test_a_background_rebuild_imports_nothing_of_the_opened_folder(tmp_path: Path, command: list[str]):
    """A table of one line, then so many more files that the server rebuilds the table."""
    trap = Trap(tmp_path)
    data = tmp_path / "data"
    (trap.folder / "app.py").write_text("answer = 42\n")
    build = [*command, "--data-dir", str(data), "build-ngrams", str(trap.folder), "--name", "opened"]
    subprocess.run(build, cwd=trap.folder, env=environment(trap), check=True, capture_output=True)
    before = Registry(data).find("opened").path
    for number in range(30):
        (trap.folder / f"more_{number}.py").write_text(f"value_{number} = compute_{number}(other)\n")
    async with server(command, trap) as (_, editor):
        await editor.start_and_load(rootUri=trap.folder.as_uri())
        editor.open("value = ", uri=(trap.folder / "new.py").as_uri())
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while Registry(data).find("opened").path == before:
            assert asyncio.get_running_loop().time() < deadline, trap.sprung
            await editor.request("textDocument/completion", at(0, 8, uri=(trap.folder / "new.py").as_uri()))
            await asyncio.sleep(0.1)
    assert trap.sprung == []


@pytest.mark.slow
@pytest.mark.parametrize("command", STARTS)
def test_a_command_in_an_untrusted_clone_imports_nothing_of_it(tmp_path: Path, command: list[str]):
    trap = Trap(tmp_path)
    (trap.folder / "app.py").write_text("answer = 42\n")
    build = [*command, "--data-dir", str(tmp_path / "data"), "build-ngrams", "."]
    done = subprocess.run(build, cwd=trap.folder, env=environment(trap), capture_output=True, text=True)
    assert trap.sprung == []
    assert done.returncode == 0, done.stderr

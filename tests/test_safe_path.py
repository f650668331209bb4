"""Nothing in the working folder, or in a folder opened in an editor, is imported or run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ngram_builders.registry.registry import Registry
from tests.hostile import Trap
from tests.lsp.lsp_client import Editor, at
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


@asynccontextmanager
async def server(command: list[str], trap: Trap, environment: dict[str, str]) -> AsyncIterator[Editor]:
    """Start a server in the trap."""
    pipes = dict.fromkeys(("stdin", "stdout"), asyncio.subprocess.PIPE)
    child = await asyncio.create_subprocess_exec(*command, cwd=trap.folder, env=environment, **pipes)
    assert child.stdin and child.stdout
    editor = Editor(child.stdout, child.stdin)
    try:
        yield editor
    finally:
        editor.listening.cancel()
        if child.returncode is None:
            child.kill()
        await child.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("command", STARTS)
async def test_a_server_completes_and_imports_nothing_of_the_opened_folder(tmp_path: Path, command: list[str]):
    trap = Trap(tmp_path)
    arguments = ["--data-dir", str(tmp_path / "data"), "serve"]
    async with server([*command, *arguments], trap, environment(trap)) as editor:
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
    data, file, variables = tmp_path / "data", trap.folder / "app.py", environment(trap)
    options = ["--data-dir", str(data)]
    file.write_text("answer = 42\n")
    build = [*command, *options, "build-ngrams", str(trap.folder), "--name", "opened"]
    subprocess.run(build, cwd=trap.folder, env=variables, check=True, capture_output=True)
    before = Registry(data).find("opened").path
    for number in range(30):
        (trap.folder / f"more_{number}.py").write_text(f"value_{number} = compute_{number}(other)\n")
    async with server([*command, *options, "serve"], trap, variables) as editor:
        await editor.start_and_load(rootUri=trap.folder.as_uri())
        editor.open("value = ", uri=(trap.folder / "new.py").as_uri())
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while Registry(data).find("opened").path == before:
            assert asyncio.get_running_loop().time() < deadline, (
                trap.sprung,
                editor.received("window/showMessage"),
            )
            await editor.request("textDocument/completion", at(0, 8, uri=(trap.folder / "new.py").as_uri()))
            await asyncio.sleep(0.1)
    assert trap.sprung == []


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["build-ngrams", "."]])
@pytest.mark.parametrize("command", STARTS)
def test_a_command_in_an_untrusted_clone_imports_nothing_of_it(
    tmp_path: Path, command: list[str], arguments: list[str]
):
    if "build-ngrams" in arguments:
        arguments = ["--data-dir", str(tmp_path / "data"), *arguments]
    trap = Trap(tmp_path)
    (trap.folder / "app.py").write_text("answer = 42\n")
    process = subprocess.run(
        [*command, *arguments], cwd=trap.folder, env=environment(trap), capture_output=True, text=True
    )
    assert trap.sprung == []
    assert process.returncode == 0, process.stderr

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
from spd_lsp import safe_path
from tests.hostile import Trap
from tests.lsp.lsp_client import Editor, at
from tests.processes import TIMEOUT

PROGRAM = [str(Path(sys.executable).with_name("spd-lsp"))]
MODULE = [sys.executable, "-m", "spd_lsp"]
# What `python -m` imports from the working folder before any line of ours runs.
IMPORTED_BY_PYTHON = ("spd_lsp", "runpy", "warnings")
# What Python and pip's `spd-lsp` script import from PYTHONPATH before that.
IMPORTED_FROM_PYTHONPATH = ("spd_lsp", "sitecustomize", "usercustomize", "re")

installed = pytest.mark.skipif(not Path(PROGRAM[0]).exists(), reason="needs spd-lsp beside python")
python_has_safe_path = pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is new in Python 3.11")

STARTS = [
    pytest.param(PROGRAM, {}, (), marks=installed, id="spd-lsp"),
    pytest.param(PROGRAM, {"PYTHONPATH": ":."}, IMPORTED_FROM_PYTHONPATH, marks=installed, id="PYTHONPATH"),
    pytest.param(MODULE, {}, IMPORTED_BY_PYTHON, id="python -m"),
    pytest.param([sys.executable, "-P", *MODULE[1:]], {}, (), marks=python_has_safe_path, id="python -P -m"),
]


def environment(trap: Trap, **more: str) -> dict[str, str]:
    """Return the environment of a shell whose PATH names the working folder, as `.` and as an empty entry."""
    path = os.pathsep.join([".", "", os.environ["PATH"]])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, "HOME": str(trap.marks.parent), **more}


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
@pytest.mark.parametrize(("command", "variables", "without"), STARTS)
async def test_a_server_completes_and_imports_nothing_of_the_opened_folder(
    tmp_path: Path, command: list[str], variables: dict[str, str], without: tuple[str, ...]
):
    trap = Trap(tmp_path, without=without)
    arguments = ["--data-dir", str(tmp_path / "data"), "serve"]
    async with server([*command, *arguments], trap, environment(trap, **variables)) as editor:
        await editor.start_and_load(rootUri=trap.folder.as_uri())
        editor.open("import os\n\nprint(os.", uri=(trap.folder / "app.py").as_uri())
        answer = await editor.request("textDocument/completion", at(2, 9, uri=(trap.folder / "app.py").as_uri()))
        assert answer["items"]
    assert trap.sprung == []


@pytest.mark.slow
@pytest.mark.parametrize(("command", "variables", "without"), [STARTS[0], STARTS[2]])
async def test_a_background_rebuild_imports_nothing_of_the_opened_folder(
    tmp_path: Path, command: list[str], variables: dict[str, str], without: tuple[str, ...]
):
    """A table of one line, then a file with so much more that the server rebuilds the table."""
    trap = Trap(tmp_path, without=without)
    data, file, variables = tmp_path / "data", trap.folder / "app.py", environment(trap, **variables)
    options = ["--data-dir", str(data)]
    file.write_text("answer = 42\n")
    build = [*command, *options, "build-ngrams", str(trap.folder), "--name", "opened"]
    subprocess.run(build, cwd=trap.folder, env=variables, check=True, capture_output=True)
    before = Registry(data).find("opened").path
    file.write_text("".join(f"value_{i} = compute_{i * i}({i}, other_{i % 7})\n" for i in range(2500)))
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
@pytest.mark.parametrize("arguments", [["--version"], ["--engine", "datatrove", "--workers", "1"]])
@pytest.mark.parametrize("command", [pytest.param(PROGRAM, marks=installed, id="spd-lsp"), MODULE])
def test_a_command_in_an_untrusted_clone_imports_nothing_of_it(
    tmp_path: Path, command: list[str], arguments: list[str]
):
    """The workers of `--engine datatrove` are Python processes of their own."""
    if "datatrove" in arguments:
        pytest.importorskip("datatrove")
        arguments = ["--data-dir", str(tmp_path / "data"), "build-ngrams", ".", *arguments]
    trap = Trap(tmp_path, without=IMPORTED_BY_PYTHON if command is MODULE else ())
    (trap.folder / "app.py").write_text("answer = 42\n")
    process = subprocess.run(
        [*command, *arguments], cwd=trap.folder, env=environment(trap), capture_output=True, text=True
    )
    assert trap.sprung == []
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("entry", ["", ".", "lib", "../lib"])
def test_entries_that_depend_on_the_working_folder_are_not_safe(tmp_path: Path, entry: str):
    assert not safe_path.is_safe(entry, str(tmp_path))


def test_the_working_folder_is_not_safe_under_any_name(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    here = os.path.realpath(tmp_path)
    assert not safe_path.is_safe(str(tmp_path), here)
    assert not safe_path.is_safe(str(tmp_path / "link"), here)
    assert safe_path.is_safe(str(tmp_path / "below"), here), "such as a virtual environment"


def test_python_and_this_package_are_safe_even_if_they_are_the_working_folder():
    for folder in (safe_path.OWN, safe_path.PYTHON_LIBRARY, "/usr/lib/python3/dist-packages"):
        assert safe_path.is_safe(folder, os.path.realpath(folder))

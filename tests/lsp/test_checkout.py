"""What git and other programs do to hundreds of files is learnt by the real server while nobody asks.

Answers are counted, and asked for until they are right: how long that takes is the machine's affair.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import PACKAGE
from tests.lsp.lsp_client import Editor, at, texts, until
from tests.lsp.test_server_live import SERVE, build_table, leave
from tests.lsp.test_server_process import COMPLETION, process
from tests.processes import TIMEOUT, commands_with

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]
HABIT = """

def load_{name}(gateway):
    {name}_ledger = gateway.collect_{name}_entries(window={number}, strict=True)
    return {name}_ledger
"""
ASKED = "def read_again(gateway):\n    {name}_ledger = gateway.coll"
# A server whose builds do not give way to all else that this machine does.
PROMPT_BUILDS = """
from spd_lsp import cli
from spd_lsp.ngrams import background_process

background_process._PRIORITY = 0
cli.main()
"""
COLOURS = ("amber", "coral", "dusky", "ember", "frost", "hazel", "ivory", "lunar", "ochre", "pearl")
ANIMALS = ("otter", "heron", "raven", "tapir", "viper", "whale", "zebra", "bison", "camel", "egret")
NAMES = [f"{colour}_{animal}" for animal in ANIMALS for colour in COLOURS]
CHANGED, GONE = NAMES[:60], NAMES[60:100]  # one for each file that the second commit changes or deletes
DELETED, WRITTEN = 3, 2  # in the protocol


@dataclass(frozen=True)
class History:
    """A repository with two branches."""

    folder: Path
    changed: list[Path]
    gone: list[Path]

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=someone", "-c", "user.email=someone@localhost")
        subprocess.run(["git", "-C", self.folder, *who, *arguments], check=True, capture_output=True)

    @property
    def events(self) -> list[dict[str, object]]:
        """What an editor reports of a checkout."""
        kinds = [(file, WRITTEN) for file in self.changed] + [(file, DELETED) for file in self.gone]
        return [{"uri": file.as_uri(), "type": kind} for file, kind in kinds]


def add(names: list[str], files: list[Path]) -> None:
    """Write something that can be asked for at the end of each file."""
    for number, (name, file) in enumerate(zip(names, files, strict=True)):
        file.write_text(file.read_text() + HABIT.format(name=name, number=number))


@pytest.fixture
def history(tmp_path: Path) -> History:
    """This package as a repository whose second branch changes 60 files and deletes 40."""
    folder = tmp_path / "shop"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("starter", "__pycache__"))
    files = sorted(file for file in folder.rglob("*.py") if file.stat().st_size > 200)
    random.Random(0).shuffle(files)
    history = History(folder, files[:60], files[60:100])
    add(GONE, history.gone)
    history.git("init", "-q", "-b", "main")
    history.git("add", "-A")
    history.git("commit", "-qm", "one")
    history.git("checkout", "-q", "-b", "other")
    add(CHANGED, history.changed)
    for file in history.gone:
        file.unlink()
    history.git("add", "-A")
    history.git("commit", "-qm", "two")
    history.git("checkout", "-q", "main")
    return history


@asynccontextmanager
async def serving(data: Path, folder: Path) -> AsyncIterator[Editor]:
    """An editor that has opened a folder with a table."""
    async with process("-c", PROMPT_BUILDS, "--data-dir", str(data), *SERVE) as (child, editor):
        await editor.start_and_load(workspaceFolders=[{"uri": folder.as_uri(), "name": folder.name}])
        yield editor
        assert "Traceback" not in await leave(child, editor)


async def answers(editor: Editor, folder: Path, names: list[str]) -> list[str]:
    """The best completion where each name is asked for, in a new document."""
    best = []
    for name in names:
        uri, text = (folder / f"asked_{name}.py").as_uri(), ASKED.format(name=name)
        editor.open(text, uri)
        found = texts(await editor.request(COMPLETION, at(1, len(text.split("\n")[1]), uri=uri)))
        editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        best.append(next(iter(found), ""))
    return best


def right(best: list[str], names: list[str]) -> int:
    """How many answers have the name that was asked for."""
    return sum(f"collect_{name}_entries" in text for name, text in zip(names, best, strict=True))


async def until_right(editor: Editor, folder: Path, names: list[str], wanted: int) -> None:
    """Ask now and then, so that most of the time nobody does, until so many answers are right."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT
    while (found := right(await answers(editor, folder, names), names)) != wanted:
        assert asyncio.get_running_loop().time() < deadline, f"{found} of {len(names)} have their names"
        await asyncio.sleep(1.0)


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "silent"])
async def test_after_a_checkout_answers_are_those_of_a_table_built_anew(
    history: History, tmp_path: Path, is_told: bool
):
    data = build_table(history.folder, tmp_path, "shop")
    rebuild = b"%s\0ngrams\0rebuild\0" % os.fsencode(data)
    gone, new = GONE[::4], CHANGED[::3]
    async with serving(data, history.folder) as editor:
        await until_right(editor, history.folder, gone, len(gone))
        history.git("checkout", "-q", "other")
        if is_told:
            editor.notify("workspace/didChangeWatchedFiles", {"changes": history.events})
        await until(lambda: commands_with(rebuild))  # though nobody has asked
        await until_right(editor, history.folder, gone, 0)
        await until_right(editor, history.folder, new, len(new))
        await until(lambda: not commands_with(rebuild))
        async with serving(build_table(history.folder, tmp_path / "fresh", "shop"), history.folder) as fresh:
            expected = await answers(fresh, history.folder, new)
        assert right(expected, new) == len(new)
        assert await answers(editor, history.folder, new) == expected
        assert right(await answers(editor, history.folder, gone), gone) == 0

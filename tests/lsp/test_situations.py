"""What happens to people while they type, over real pipes, with the bundled model and with a slow one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.lsp_client import Editor, result
from tests.lsp.test_server_live import leave
from tests.lsp.test_server_process import process

SERVE = ("serve", "--device", "cpu")
SERVERS = {"starter": ("-m", "spd_lsp"), "slow": ("-m", "tests.e2e.slow_server", "0.02", "{record}")}
INLINE = "textDocument/inlineCompletion"
GHOST = {"textDocument": {"completion": {}, "inlineCompletion": {}}}

CODE = """\
class Kettle:
    def __init__(self, litres):
        self.litres = litres

    def boil_water(self, seconds):
        return self.litres * seconds


def brew(kettle):
    kettle.boil_water(60)
    kettle.boil_water(90)
    """

pytestmark = pytest.mark.slow
both = pytest.mark.parametrize("server", SERVERS)


class Document:
    """A document in an editor, whose changes the server is told of."""

    def __init__(self, editor: Editor, text: str, uri: str) -> None:
        self.editor, self.text, self.uri, self.version = editor, text, uri, 1
        editor.open(text, uri)

    def change(self, *replacements: tuple[int, int, str]) -> None:
        """Replace parts, from which offset to which by what, in one notification."""
        changes = []
        for start, end, new in replacements:
            span = {"start": self.place(start), "end": self.place(end)}
            changes.append({"range": span, "text": new})
            self.text = self.text[:start] + new + self.text[end:]
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        self.editor.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})

    def replace_all(self, before: str, after: str) -> None:
        """As a rename does: every occurrence, the last one first."""
        found = [match.start() for match in re.finditer(rf"\b{before}\b", self.text)]
        self.change(*((start, start + len(before), after) for start in reversed(found)))

    def type(self, text: str) -> None:
        """Type at the end."""
        for char in text:
            self.change((len(self.text), len(self.text), char))

    def place(self, offset: int) -> dict[str, int]:
        """A position by its offset."""
        before = self.text[:offset]
        return {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}

    async def offered(self) -> list[str]:
        """All drafts at the end, with the word that they complete."""
        place = {"textDocument": {"uri": self.uri}, "position": self.place(len(self.text))}
        return [draft["label"] for draft in await self.editor.request("spd-lsp/drafts", place)]

    def ask_for_ghost_text(self) -> asyncio.Future[Any]:
        """Ask as while typing; the answer to come."""
        params = {"textDocument": {"uri": self.uri}, "position": self.place(len(self.text))}
        return self.editor.send_request(INLINE, {**params, "context": {"triggerKind": 2}})[1]


def knows(offered: list[str], name: str) -> bool:
    """Whether something that is offered begins with a name."""
    return any(text.startswith(name) for text in offered)


@asynccontextmanager
async def editing(server: str, folder: Path, **more: Any) -> AsyncIterator[Editor]:
    """An editor at a server of this kind; by the end the server has logged no failure, and no code."""
    command = [part.format(record=folder / "record") for part in SERVERS[server]]
    async with process(*command, "--data-dir", str(folder / "data"), *SERVE) as (child, editor):
        await editor.start_and_load(GHOST, **more)
        yield editor
        log = await leave(child, editor)
        assert "Traceback" not in log and "boil_water" not in log, log


@both
async def test_a_renamed_method_is_offered_by_its_new_name_only(server: str, tmp_path: Path):
    async with editing(server, tmp_path) as editor:
        document = Document(editor, CODE, "file:///code/kettle.py")
        document.type("kettle.bo")
        assert knows(await document.offered(), "boil_water")
        document.replace_all("boil_water", "heat_up")
        document.change((len(document.text) - 2, len(document.text), "he"))
        offered = await document.offered()
        assert knows(offered, "heat_up"), offered
        assert not any("boil_water" in text for text in offered)


@both
async def test_after_a_storm_of_undoing_every_request_is_answered_and_the_last_for_what_stands_there(
    server: str, tmp_path: Path
):
    async with editing(server, tmp_path) as editor:
        document = Document(editor, CODE, "file:///code/kettle.py")
        answers = []
        for number in range(60):
            document.type("kettle.b")
            answers.append(document.ask_for_ghost_text())
            document.change((len(CODE), len(document.text), ""))  # undone
            answers += [document.ask_for_ghost_text()] * (number % 3 == 0)
        assert document.text == CODE
        await asyncio.gather(*map(result, answers))
        document.type("kettle.b")
        assert knows(await document.offered(), "boil_water")


async def test_two_windows_on_a_folder_share_its_table(tmp_path: Path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "kettle.py").write_text(CODE)
    folder = {"workspaceFolders": [{"uri": (tmp_path / "shop").as_uri(), "name": "shop"}]}
    async with editing("starter", tmp_path, **folder) as first, editing("starter", tmp_path, **folder) as second:
        for number, editor in enumerate((first, second)):
            text = "def serve(kettle):\n    kettle.bo"
            document = Document(editor, text, (tmp_path / "shop" / f"{number}.py").as_uri())
            while not knows(await document.offered(), "boil_water"):
                await asyncio.sleep(0.05)  # until the table is built, in one of them
    assert len(list(tmp_path.rglob("*.ngt"))) == 1

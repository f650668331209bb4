"""What happens to people while they type, over real pipes, with the bundled model and with a slow one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.lsp_client import Editor, at, result, until
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

    def __init__(self, editor: Editor, text: str, uri: str, language: str = "python") -> None:
        self.editor, self.text, self.uri, self.version = editor, text, uri, 1
        editor.open(text, uri, language)

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

    async def offered(self, offset: int | None = None) -> list[str]:
        """All drafts at the end, or at an offset, with the word that they complete."""
        place = {
            "textDocument": {"uri": self.uri},
            "position": self.place(len(self.text) if offset is None else offset),
        }
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


async def test_another_branch_brings_its_names_and_takes_those_of_the_last(tmp_path: Path):
    (tmp_path / "shop").mkdir()
    other = tmp_path / "shop" / "kettle.py"
    other.write_text(CODE)
    async with editing(
        "starter", tmp_path, workspaceFolders=[{"uri": other.parent.as_uri(), "name": "shop"}]
    ) as editor:
        document = Document(editor, CODE, other.as_uri())
        asked = Document(editor, "def serve(kettle):\n    kettle.", (other.parent / "asked.py").as_uri())
        for before, after in (("boil_water", "heat_up"), ("heat_up", "boil_water")):
            other.write_text(CODE.replace("boil_water", after))
            document.replace_all(before, after)
            event = {"uri": document.uri, "type": 2}
            editor.notify("workspace/didChangeWatchedFiles", {"changes": [event]})
            asked.type(after[:2])
            assert knows(await asked.offered(), after)
            assert not any(before in text for text in await asked.offered())
            asked.change((len(asked.text) - 2, len(asked.text), ""))


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


@both
async def test_an_argument_is_added_to_a_call_without_a_second_bracket(server: str, tmp_path: Path):
    call = "    kettle.boil_water(60"
    async with editing(server, tmp_path) as editor:
        document = Document(editor, CODE.replace(call + ")", call + ", )", 1), "file:///code/kettle.py")
        cursor = document.text.index(call) + len(call) + 2
        for drafts in (await document.offered(cursor), await document.offered(cursor)):
            for text in drafts:
                assert "\n" not in text and text.count(")") <= text.count("("), drafts


async def test_in_ten_thousand_lines_names_near_the_cursor_are_offered(tmp_path: Path):
    filler = "".join(f"def step_{number}(value):\n    return value + {number}\n\n\n" for number in range(2500))
    async with editing("starter", tmp_path) as editor:
        document = Document(editor, filler + CODE + "\n" + filler, "file:///code/kettle.py")
        cursor = len(filler) + len(CODE)
        for char in "kettle.bo":
            document.change((cursor, cursor, char))
            cursor += 1
        assert document.text.count("\n") > 10_000
        assert knows(await document.offered(cursor), "boil_water")


OTHER_LANGUAGES = {
    ("go", "file:///code/kettle.go"): (
        "func brew(kettle *Kettle) {\n\tkettle.BoilWater(60)\n\tkettle.",
        "Bo",
        "BoilWater",
    ),
    ("typescript", "untitled:Untitled-1"): (
        "function brew(kettle: Kettle) {\n  kettle.boilWater(60);\n  kettle.",
        "bo",
        "boilWater",
    ),
}


@pytest.mark.parametrize(("language", "uri"), OTHER_LANGUAGES)
async def test_go_and_typescript_are_completed_also_in_a_document_without_a_file(
    language: str, uri: str, tmp_path: Path
):
    text, typed, name = OTHER_LANGUAGES[language, uri]
    async with editing("starter", tmp_path) as editor:
        document = Document(editor, text, uri, language)
        document.type(typed)
        assert knows(await document.offered(), name)


# The bundled model, slowed down; each line of the record: how many positions of a prompt are read now.
COUNTED = """
import sys, time
from pathlib import Path
from spd_lsp.cli import main
from spd_lsp.models.llama.engine import LlamaEngine

record = Path(sys.argv[1]).open("a", buffering=1)
read_chunk = LlamaEngine.read_chunk

def slow(self, ids, cache, check):
    print(len(ids), file=record)
    for _ in range(20):
        check()
        time.sleep(0.02)
    return read_chunk(self, ids, cache, check)

LlamaEngine.read_chunk = slow
main(sys.argv[2:])
"""


async def test_ten_switches_among_documents_cost_two_readings_at_most_and_the_last_is_answered(tmp_path: Path):
    record = tmp_path / "record"
    record.touch()

    def positions() -> int:
        return sum(map(int, record.read_text().split()))

    command = ("-c", COUNTED, str(record), "--data-dir", str(tmp_path / "data"), *SERVE)
    async with process(*command) as (_, editor):
        await editor.start_and_load(GHOST)
        replies = []
        for number in range(11):
            lines = [f"reading_{number}_{line} = measure({number}, 'kettle', {line})\n" for line in range(40)]
            editor.open("".join([*lines, f"total = reading_{number}_"]), f"file:///code/{number}.py")
        for number in range(10):
            place = at(40, len("total = reading_0_"), None, f"file:///code/{number}.py")
            editor.notify("spd-lsp/cursor", place)
            replies.append(editor.send_request(INLINE, {**place, "context": {"triggerKind": 1}})[1])
            await until(positions)  # the first document is being read
        answers = [await result(reply) for reply in replies]
        assert answers[:-1] == [None] * 9 and answers[-1]["items"]
        ten = positions()
        place = at(40, len("total = reading_10_"), None, "file:///code/10.py")
        await editor.request(INLINE, {**place, "context": {"triggerKind": 1}})
        assert ten <= 2 * (positions() - ten)

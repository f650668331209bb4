"""Next edits over a real connection: what was typed with `didChange` is proposed where it is wanted, too."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from spd_lsp.edits.probability import MIN_PROBABILITY
from spd_lsp.lsp.next_edits import read_closed
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import URI, Editor, FakeCompleter, edit, opened, session
from tests.lsp.test_server_live import build_table
from tests.lsp.test_server_process import process
from tests.processes import TIMEOUT

INLINE_EDIT = "textDocument/copilotInlineEdit"
SOURCE = """def area(width, height):
    # the width counts
    if height:
        return width * height
    return 0
"""
ON = Settings(next_edits=True)


def asked(version: int, **context: Any) -> dict[str, Any]:
    """What sidekick.nvim and copilot-lsp send."""
    document = {"uri": URI, "version": version}
    place = {"textDocument": document, "position": {"line": 0, "character": 14}}
    return {**place, "context": {"triggerKind": 2, **context}}


async def rename(editor: Editor) -> None:
    """Change the parameter `width` to `breadth` as a person does: select it, then type."""
    editor.send(edit("", 0, 9, 14, version=2))
    for number, char in enumerate("breadth"):
        editor.send(edit(char, 0, 9 + number, 9 + number, version=3 + number))


async def test_a_renamed_parameter_is_proposed_at_its_use_three_lines_below(tmp_path: Path):
    options = {"nextEdits": True, "model": "none"}
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), "serve") as (_, editor):
        await editor.start(initializationOptions=options)
        await editor.ready()
        editor.open(SOURCE)
        await rename(editor)
        [found] = (await editor.request(INLINE_EDIT, asked(9)))["edits"]
        assert found.pop("probability") >= MIN_PROBABILITY
        assert found == {
            "text": "breadth",
            "range": {"start": {"line": 3, "character": 15}, "end": {"line": 3, "character": 20}},
            "textDocument": {"uri": URI, "version": 9},
        }


async def test_nothing_is_proposed_unless_it_is_switched_on():
    async with session(FakeCompleter()) as editor:
        await opened(editor, SOURCE)
        await rename(editor)
        assert await editor.request(INLINE_EDIT, asked(9)) == {"edits": []}


async def test_an_edit_that_is_undone_is_proposed_nowhere():
    async with session(FakeCompleter(), ON) as editor:
        await opened(editor, SOURCE)
        await rename(editor)
        editor.send(edit("width", 0, 9, 16, version=10))
        assert await editor.request(INLINE_EDIT, asked(10)) == {"edits": []}


OTHER_URI = "file:///code/uses.py"
CALLS = """one = area(width, height)
two = area(width, depth)
"""


async def test_with_a_limit_places_in_other_open_documents_follow_those_of_this_one():
    async with session(FakeCompleter(), ON) as editor:
        await opened(editor, CALLS)
        editor.open(CALLS.replace("one =", "six ="), OTHER_URI)
        editor.open(CALLS, "file:///code/.env.py")  # may hold secrets
        for row, version in ((0, 2), (1, 3)):
            editor.send(edit(", debug=True", row, 24 - row, 24 - row, version=version))
        # That call of the other document is like the one that got an argument last.
        found = (await editor.request(INLINE_EDIT, asked(3, limit=20)))["edits"]
        assert {(one["textDocument"]["uri"], one["range"]["start"]["line"]) for one in found} == {(OTHER_URI, 1)}
        assert await editor.request(INLINE_EDIT, asked(3)) == {"edits": []}
        there = {"textDocument": {"uri": OTHER_URI, "version": 1}, "position": {"line": 0, "character": 0}}
        [same] = (await editor.request(INLINE_EDIT, {**there, "context": {"triggerKind": 2}}))["edits"]
        assert same["textDocument"] == {"uri": OTHER_URI, "version": 1}


@pytest.mark.slow
async def test_places_in_imported_files_that_are_not_open_are_edits_of_their_files(tmp_path: Path):
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "shapes.py").write_bytes(CALLS.replace("one =", "six =").replace("\n", "\r\n").encode())
    (repository / "unrelated.py").write_text(CALLS.replace("one =", "six ="))
    build_table(repository, tmp_path)
    uri, closed = ((repository / name).as_uri() for name in ("main.py", "shapes.py"))
    arguments = ("-m", "spd_lsp", "--data-dir", str(tmp_path / "data"), "serve")
    async with process(*arguments) as (_, editor):
        await editor.start(initializationOptions={"nextEdits": True, "model": "none"})
        await editor.ready()
        editor.open(f"from shapes import area\n{CALLS}", uri)
        for row, version in ((1, 2), (2, 3)):
            editor.send(edit(", debug=True", row, 25 - row, 25 - row, version, uri))
        asked_there = {**asked(3, limit=20), "textDocument": {"uri": uri, "version": 3}}

        async def found(wanted: bool = True) -> list[dict[str, Any]]:
            """What is proposed once there is something, or nothing: tables are opened between requests."""
            deadline = asyncio.get_running_loop().time() + TIMEOUT
            while True:
                edits: list[dict[str, Any]] = (await editor.request(INLINE_EDIT, asked_there))["edits"]
                if bool(edits) == wanted:
                    return edits
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.05)

        [there] = await found()
        assert there["textDocument"] == {"uri": closed, "version": None}
        assert (there["text"], there["range"]["start"]) == (", debug=True", {"line": 1, "character": 23})
        editor.open((repository / "shapes.py").read_text(), closed)  # from now on the editor has its text
        [there] = await found()
        assert there["textDocument"] == {"uri": closed, "version": 1}
        editor.notify("textDocument/didClose", {"textDocument": {"uri": closed}})
        (repository / "shapes.py").write_text("# gone\n")
        assert await found(wanted=False) == []


def test_of_imported_files_only_short_texts_without_secrets_are_read_and_so_many(tmp_path: Path):
    texts = {"a.py": b"x = 1\n", "long.py": b"#" * 200_001, "latin.py": b"# \xe9\n", ".env.py": b"x = 1\n"}
    texts |= {f"{number}.py": b"y" * 200_000 for number in range(6)}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    os.mkfifo(tmp_path / "pipe.py")
    paths = [str(tmp_path / name) for name in ("missing.py", "pipe.py", *texts)]
    read = [Path(document.path).name for document in read_closed(paths, "utf-16")]
    assert read == ["a.py", "0.py", "1.py", "2.py", "3.py"]


@pytest.mark.parametrize(
    "params", [None, {}, {"textDocument": {"uri": 3}}, {"textDocument": {"uri": URI}, "context": 3}]
)
async def test_a_malformed_request_gets_nothing(params: Any):
    async with session(FakeCompleter(), ON) as editor:
        await opened(editor, SOURCE)
        assert await editor.request(INLINE_EDIT, params) == {"edits": []}

"""What happens to people while they type, over real pipes and with the bundled model."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.lsp.lsp_client import Editor, at
from tests.lsp.test_server_process import serving
from tests.processes import TIMEOUT

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


def place(text: str, offset: int) -> dict[str, int]:
    """The position of an offset."""
    before = text[:offset]
    return {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}


async def offered(editor: Editor, text: str, uri: str) -> list[str]:
    """All drafts at the end, with the word that they complete."""
    end = place(text, len(text))
    drafts = await editor.request("spd-lsp/drafts", at(end["line"], end["character"], None, uri))
    return [draft["label"] for draft in drafts]


async def test_a_renamed_method_is_offered_by_its_new_name_only(tmp_path: Path):
    uri, before, after = "file:///code/kettle.py", "boil_water", "heat_up"
    text = f"{CODE}kettle.bo"
    async with serving(tmp_path) as (_, editor):
        editor.open(text, uri)
        assert any(label.startswith(before) for label in await offered(editor, text, uri))
        changes = []  # as editors send a rename: the last one first
        for match in reversed([*re.finditer(before, text), *re.finditer("bo$", text)]):
            span = {"start": place(text, match.start()), "end": place(text, match.end())}
            new = after if match[0] == before else "he"
            changes.append({"range": span, "text": new})
            text = text[: match.start()] + new + text[match.end() :]
        params = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": changes}
        editor.notify("textDocument/didChange", params)
        found = await offered(editor, text, uri)
        assert any(label.startswith(after) for label in found), found
        assert not any(before in label for label in found)


async def test_two_windows_on_a_folder_share_its_table(tmp_path: Path):
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "kettle.py").write_text(CODE)
    folder = {"workspaceFolders": [{"uri": shop.as_uri(), "name": "shop"}]}
    async with serving(tmp_path / "data", **folder) as (_, one), serving(tmp_path / "data", **folder) as (_, two):
        for number, editor in enumerate((one, two)):
            text, uri = "def serve(kettle):\n    kettle.bo", (shop / f"{number}.py").as_uri()
            editor.open(text, uri)
            async with asyncio.timeout(TIMEOUT):
                while not any(label.startswith("boil_water") for label in await offered(editor, text, uri)):
                    await asyncio.sleep(0.05)  # until the table is built, in one of them
    assert len(list(tmp_path.rglob("*.ngt"))) == 1

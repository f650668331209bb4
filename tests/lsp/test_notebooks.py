"""The cells of a notebook in one language are one text: each is completed after the cells before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.lsp.lsp_client import FakeCompleter, at, edit, session, texts, until

COMPLETION = "textDocument/completion"
NOTEBOOK = "file:///code/study.ipynb"
CELLS = {"notebookDocument": {"synchronization": {}}, "textDocument": {}}


def cell_uri(name: str) -> str:
    return f"vscode-notebook-cell:/code/study.ipynb#{name}"


def cell(name: str, text: str, language: str = "python") -> tuple[dict[str, Any], dict[str, Any]]:
    """A cell of the notebook, and its document."""
    kind = 1 if language == "markdown" else 2
    document = {"uri": cell_uri(name), "languageId": language, "version": 1, "text": text}
    return {"kind": kind, "document": cell_uri(name)}, document


async def opened_notebook(editor: Any, *cells: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """Start, and open a notebook of these cells; what the server can do."""
    answer = await editor.start_and_load(CELLS)
    notebook = {"uri": NOTEBOOK, "notebookType": "jupyter-notebook", "version": 1, "cells": [c for c, _ in cells]}
    params = {"notebookDocument": notebook, "cellTextDocuments": [document for _, document in cells]}
    editor.notify("notebookDocument/didOpen", params)
    return answer["capabilities"]


def changed(**cells: Any) -> dict[str, Any]:
    return {"notebookDocument": {"uri": NOTEBOOK, "version": 2}, "change": {"cells": cells}}


FIRST, TITLE, SECOND = cell("a", "import os"), cell("t", "# Title", "markdown"), cell("b", "x = so")
WHOLE = "import os\nx = so\n"


async def test_a_cell_is_completed_after_the_cells_before_it():
    fake = FakeCompleter("rted(y)")
    async with session(fake) as editor:
        capabilities = await opened_notebook(editor, FIRST, TITLE, SECOND)
        assert capabilities["notebookDocumentSync"]["notebookSelector"] == [{"notebook": "*"}]
        answer = await editor.request(COMPLETION, at(0, 6, uri=cell_uri("b")))
        assert fake.requests == [(WHOLE, 16, "python", Path("/code/study.ipynb"), True)]
        (item,) = answer["items"]
        span = {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 6}}
        assert item["textEdit"] == {"range": span, "newText": "sorted(y)"}, "positions are the cell's"


async def test_cells_that_are_edited_inserted_and_deleted_change_the_text():
    fake = FakeCompleter()
    async with session(fake) as editor:
        await opened_notebook(editor, FIRST, SECOND)
        edits = edit("sys", 0, 7, 9, uri=cell_uri("a"))["params"]
        content = {"document": edits["textDocument"], "changes": edits["contentChanges"]}
        editor.notify("notebookDocument/didChange", changed(textContent=[content]))
        await editor.request(COMPLETION, at(0, 6, uri=cell_uri("b")))
        assert fake.requests[-1][:2] == ("import sys\nx = so\n", 17)
        new, document = cell("c", "y = 1")
        structure = {"array": {"start": 1, "deleteCount": 0, "cells": [new]}, "didOpen": [document]}
        editor.notify("notebookDocument/didChange", changed(structure=structure))
        await editor.request(COMPLETION, at(0, 6, uri=cell_uri("b")))
        assert fake.requests[-1][:2] == ("import sys\ny = 1\nx = so\n", 23)
        gone = {"array": {"start": 0, "deleteCount": 1, "cells": []}, "didClose": [{"uri": cell_uri("a")}]}
        editor.notify("notebookDocument/didChange", changed(structure=gone))
        await editor.request(COMPLETION, at(0, 6, uri=cell_uri("b")))
        assert fake.requests[-1][:2] == ("y = 1\nx = so\n", 12)


async def test_the_index_gets_the_notebook_as_one_document_until_it_is_closed():
    fake = FakeCompleter()
    async with session(fake) as editor:
        await opened_notebook(editor, FIRST, TITLE, SECOND)
        await until(lambda: fake.changes)
        ((name, change),) = fake.changes.items()
        assert (change.text, change.language) == (WHOLE, "python")
        cells = [{"uri": cell_uri(name)} for name in "atb"]
        editor.notify(
            "notebookDocument/didClose", {"notebookDocument": {"uri": NOTEBOOK}, "cellTextDocuments": cells}
        )
        await until(lambda: fake.changes[name] is None)
        assert texts(await editor.request(COMPLETION, at(0, 6, uri=cell_uri("b")))) == []
        assert (await editor.status())["reason"] == "the document is not open"

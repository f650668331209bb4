"""The server over stdio with models that people use, whose tokens hold a line's indentation in many ways."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lsp.lsp_client import at, texts
from tests.lsp.test_server_process import COMPLETION, process

pytestmark = pytest.mark.slow

CODE = '''\
import json
from pathlib import Path


class Settings:
    """Settings by name, read from a file."""

    def __init__(self, path, defaults=None):
        self.path = Path(path)
        self.values = dict(defaults or {})

    def load(self):
        if not self.path.exists():
            return self.values
        with open(self.path) as file:
            self.values.update(json.load(file))
        return self.values

    def names(self):
        found = []
        for name, value in self.values.items():
            if value is not None:
                found.append(name)
        return sorted(found)
'''
LINES = CODE.split("\n")
STATEMENTS = [row for row, line in enumerate(LINES) if line.startswith("        ")]


def line_start(row: int) -> tuple[str, int]:
    """The code with nothing but the indentation on a line, and the column behind it."""
    column = len(LINES[row]) - len(LINES[row].lstrip())
    return "\n".join([*LINES[:row], " " * column, *LINES[row + 1 :]]), column


def first_word(line: str) -> str:
    return re.split(r"\W", line.strip(), maxsplit=1)[0]


async def test_where_a_line_starts_statements_are_offered_and_no_blanks(real_model: Path, tmp_path: Path):
    serve = ("serve", "--device", "cpu", "--model", str(real_model))
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path), *serve) as (_, editor):
        await editor.start_and_load()
        offered: dict[int, list[str]] = {}
        for row in STATEMENTS:
            text, column = line_start(row)
            editor.open(text)
            offered[row] = texts(await editor.request(COMPLETION, at(row, column)))
            editor.notify("textDocument/didClose", {"textDocument": {"uri": "file:///code/app.py"}})
    assert [text for found in offered.values() for text in found if text != text.lstrip()] == []
    right = [row for row, found in offered.items() if first_word(LINES[row]) in map(first_word, found)]
    assert len(right) >= len(STATEMENTS) // 3, offered

"""A small repository to evaluate on: enough files that each has others to be known from."""

from __future__ import annotations

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER

TABLE = '''"""Rows by name."""

import collections


class Table:
    """Holds rows."""

    def __init__(self, path, rows=None):
        self.path = path
        self.rows = dict(rows or {})

    def lookup(self, name, default=None):
        # the comment of a line that nobody completes
        found = self.rows.get(name, default)
        if found is None:
            raise KeyError("no row = named", name)
        return found

    def counts_of(self, names):
        return collections.Counter(name for name in names if name in self.rows)
'''
READER = '''"""Reads tables."""

from table import Table


def read_table(path, separator=","):
    """Read one."""
    rows = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            name, value = line.split(separator, 1)
            rows[name] = value.strip()
    return Table(path, rows)


def lookup_all(table, names, default=None):
    return [table.lookup(name, default) for name in names]
'''
WRITER = '''"""Writes tables."""


def write_table(table, path, separator=","):
    with open(path, "w", encoding="utf-8") as lines:
        for name, value in sorted(table.rows.items()):
            lines.write(name + separator + value)


def merge_tables(first, second, separator=","):
    rows = dict(first.rows)
    rows.update(second.rows)
    return type(first)(first.path, rows)
'''


@pytest.fixture(scope="session")
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


@pytest.fixture
def repository(tmp_path):
    """A folder `rows` with three files that know one another's words."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for name, text in (("table.py", TABLE), ("reader.py", READER), ("writer.py", WRITER)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder

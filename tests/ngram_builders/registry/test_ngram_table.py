"""A table is a consistent snapshot of its index; an invalid index is a fault, never an error.

It belongs to one model: which other table can replace it, and the command that builds one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from ngram_builders.index.table_file import MAGIC
from ngram_builders.registry.ngram_table import (
    INDEX_FILE,
    NgramTable,
    covering_tables,
    mismatch_message,
    read_ngram_table,
)
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import writer


@pytest.mark.parametrize("change", [{"tables": None}, {"tables": []}, {"roots": 5}, {"recipe": [1]}], ids=str)
def test_an_index_with_invalid_values_is_a_fault(registry: Registry, change: dict[str, object]) -> None:
    home = registry.install("mine", [writer(5)]).path.parent
    facts = msgpack.unpackb((home / INDEX_FILE).read_bytes())
    (home / INDEX_FILE).write_bytes(msgpack.packb({**facts, **change}))
    table = read_ngram_table(home)
    assert table is not None
    assert table.fault is not None
    assert "run: spd-lsp " in table.fault


def test_a_table_of_an_older_format_is_refused_with_the_command_that_makes_it_anew(
    registry: Registry, repo: Path
) -> None:
    new = registry.install("mine", [writer(5)], roots=[repo])
    new.path.write_bytes(MAGIC + b"\4" + bytes(200))
    table = read_ngram_table(new.path.parent)
    assert table is not None
    assert (table.roots, table.recipe) == (new.roots, new.recipe)  # which the command needs
    assert str(table.fault).endswith("its format 4 is older than 5; run: spd-lsp ngrams rebuild")


ROOT = Path("/code/shop")


def table(
    name: str = "shop", *roots: Path, fingerprint: str = "a1b2", fault: str = "", **recipe: Any
) -> NgramTable:
    paths = (Path(name, "t.ngt"),)
    return NgramTable(
        name=name, paths=paths, roots=roots, fingerprint=fingerprint, recipe=recipe, fault=fault or None
    )


def test_a_table_is_covered_by_those_with_all_its_sources() -> None:
    other = table("other", ROOT, Path("/code/till"))
    assert covering_tables([table("all", Path("/code"))], other) == ["all"]
    assert covering_tables([table("one", ROOT), table("two", Path("/code/till"))], other) == ["one", "two"]
    assert covering_tables([table("one", ROOT)], other) == []
    assert covering_tables([table("inner", ROOT / "src")], table("other", ROOT)) == []
    assert covering_tables([table("broken", ROOT, fault="gone")], table("other", ROOT)) == []
    assert covering_tables([table("built", ROOT)], table("team")) == []
    assert covering_tables([table("imported")], table("team")) == ["imported"]


@pytest.mark.parametrize(
    ("recipe", "command"),
    [
        ({"model": "starter"}, "run: spd-lsp build-ngrams /code/shop '/code/a b' --model '/models/my tiny'"),
        ({"model": "starter", "language": "go"}, "'/code/a b' --language go --model '/models/my tiny'"),
        ({"model": "/models/my tiny"}, "run: spd-lsp ngrams rebuild shop --model '/models/my tiny'"),
        ({}, "run: spd-lsp ngrams rebuild shop --model '/models/my tiny'"),
        ({"imported": "t.ngt"}, "import one built with /models/my tiny, or run: spd-lsp ngrams remove shop"),
    ],
)
def test_the_suggested_command_can_be_run_as_printed(recipe: dict[str, Any], command: str) -> None:
    text = mismatch_message(table("shop", ROOT, Path("/code/a b"), **recipe), "/models/my tiny")
    assert text.startswith("n-gram table shop was built for ")
    assert text.endswith(command)

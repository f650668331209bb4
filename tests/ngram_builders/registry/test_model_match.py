"""A table belongs to one model: which other table can replace it, and the command that builds one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ngram_builders.registry.model_match import (
    covering_tables,
    is_for_another_model,
    mismatch_message,
    model_label,
    name_for_model,
)
from ngram_builders.registry.ngram_table import NgramTable, is_name

ROOT = Path("/code/shop")


def table(
    name: str = "shop", *roots: Path, fingerprint: str = "a1b2", fault: str = "", **recipe: Any
) -> NgramTable:
    path = Path(name, "t.ngt")
    return NgramTable(
        name=name, path=path, roots=roots, fingerprint=fingerprint, recipe=recipe, fault=fault or None
    )


@pytest.mark.parametrize(
    ("recipe", "label"),
    [
        ({"model": "starter"}, "starter"),
        ({"model": "Qwen/Qwen2.5-Coder-0.5B"}, "Qwen2.5-Coder-0.5B"),
        ({"model": "/models/tiny"}, "tiny"),
        ({}, "tokenizer a1b2"),
    ],
)
def test_a_tables_label_names_its_model(recipe: dict[str, Any], label: str) -> None:
    assert model_label(table(**recipe)) == label


@pytest.mark.parametrize(
    ("fingerprint", "recorded", "expected"),
    [("a1b2", "starter", False), ("a1b2", "tiny", False), ("ffff", "tiny", False), ("ffff", "starter", True)],
)
def test_a_table_belongs_to_another_model_if_tokenizer_and_model_differ(
    fingerprint: str, recorded: str, expected: bool
) -> None:
    assert is_for_another_model(table(fingerprint=fingerprint, model=recorded), "tiny", "a1b2") is expected


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


@pytest.mark.parametrize(
    ("name", "model", "expected"),
    [
        ("shop", "/models/Tiny 2", "shop-Tiny-2"),
        ("shop", "Qwen/Qwen2.5-Coder-0.5B", "shop-Qwen2.5-Coder-0.5B"),
        ("shop", "/models/…", "shop-other"),
        ("n" * 63, "/m/" + "x" * 90, "n" * 38 + "-" + "x" * 24),
    ],
)
def test_an_additional_table_gets_its_own_name(name: str, model: str, expected: str) -> None:
    assert name_for_model(name, model) == expected
    assert is_name(expected)

"""`ngrams compare` says what a table brings and what it harms, in a folder that it was not built from."""

from __future__ import annotations

import re

import pytest

from spd_lsp.evaluation.table_comparison import TableComparison

FILE = """def total_{0}(first, second):
    amount = first.price + second.price
    return register.record(amount, {0})
"""
NAMES = "apple", "berry", "cherry", "date"


@pytest.fixture
def shop(tmp_path, invoke):
    """A folder of code, and a table of other code."""
    for folder in ("shop", "till"):
        (tmp_path / folder).mkdir()
        for name in NAMES:
            text = FILE.format(name) * 3 if folder == "shop" else FILE.format(name).replace("amount", "sum") * 3
            (tmp_path / folder / f"{name}.py").write_text(text, encoding="utf-8")
    invoke("build-ngrams", tmp_path / "till")
    return tmp_path / "shop"


@pytest.mark.slow
def test_each_weight_has_its_line_beside_that_without_the_table(invoke, shop):
    lines = invoke("ngrams", "compare", "till", "--on", shop, "--places", 4).stdout.splitlines()
    assert lines[0] == "4 places in 2 files, in %"
    rows = [line.split() for line in lines[2:6]]
    assert [row[0] for row in rows] == ["none", "till=0.05", "till=0.3", "till=1"]
    assert all(re.fullmatch(r"\d+\.\d", number) for row in rows for number in row[1:4])
    changes = [sum(map(int, row[4:])) for row in rows[1:]]
    assert changes[0] <= changes[2]


def test_a_table_of_the_folder_itself_is_refused_as_it_knows_the_answers(invoke, tmp_path, shop):
    output = invoke("ngrams", "compare", "till", "--on", tmp_path / "till", status=1).output
    assert "till was built from code in" in output
    assert "name another folder with --on" in output
    (tmp_path / "empty").mkdir()
    assert "0 source files" in invoke("ngrams", "compare", "till", "--on", tmp_path / "empty", status=1).output


def test_places_that_a_table_harms_are_named_with_what_stands_first_there():
    def record(key, target, without, with_it):
        arms = {"none": {"drafts": without}, "till=1": {"drafts": with_it}}
        return {"key": key, "example": {"file": f"{key}.py", "target": target}, "arms": arms}

    records = [
        record("a", "total(x)", ["total(x)", "sum(x)"], ["sum(x)", "total(x)"]),
        record("b", "y", ["y"], ["z", "w", "v", "y"]),
        record("c", "count", ["a"], ["count"]),
    ]
    found = [*TableComparison(3, ["none", "till=1"], records, {"a": 7, "b": 8, "c": 9}).describe()]
    assert found[2].split() == ["none", "66.7", "66.7", "50.0"]  # 7 of 14: the first of `total(x)`, nothing of `y`
    assert found[3].split() == ["till=1", "33.3", "66.7", "71.4", "1", "2"]
    assert found[4:] == [
        'till=1 harms a.py:7: "total(x)", number 1 without it, is number 2; number 1 is "sum(x)"',
        'till=1 harms b.py:8: "y", number 1 without it, is not offered; number 1 is "z"',
    ]

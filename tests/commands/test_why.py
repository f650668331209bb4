"""`ngrams why` names the tables, files and lines that a text stands in, and claims no others."""

from __future__ import annotations

import json
import random
import re

import pytest

from tests.ngram_builders.small_tables import writer

SHOP = """class Shop:
    def sell(self, item, customer):
        price = item.price * (1 - customer.discount)
        return self.register.record(price, item)

    def greet(self, customer):
        print(f"Hello, {customer.name}! \u00e9t\u00e9")
"""
BANK = """def transfer(source, target, amount):
    if source.balance < amount:
        raise ValueError(f"{source.name} has too little")
    return self.register.record(price, item)
"""


@pytest.fixture
def shop(tmp_path, run, monkeypatch):
    """A folder with a table, and the working folder."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    (folder / "bank.py").write_text(BANK, encoding="utf-8")
    (folder / "copy.py").write_text(BANK, encoding="utf-8")
    run("build-ngrams", folder)
    monkeypatch.chdir(folder)
    return folder


def test_a_line_is_found_in_every_file_that_has_it(run, shop):
    lines = run("ngrams", "why", "return self.register.record(price, item)").splitlines()
    assert lines[0] == "shop: 100% stands in its files"
    assert lines[1].split("   ")[0].strip() == "return self.register.record(price, item)"
    assert lines[1].endswith("3 places, 3 files")
    source = "return self.register.record(price, item)"
    assert lines[2:5] == [
        f"    {file}:{line}:{column}: {source}"
        for file, line, column in (("bank.py", 4, 5), ("copy.py", 4, 5), ("shop.py", 4, 9))
    ]
    assert len(lines) == 5


def test_a_text_from_two_places_is_split_where_they_meet(run, shop):
    asked = run("ngrams", "why", "--json", "price = item.price * (1 - source.balance < amount")
    table = json.loads(asked)["tables"][0]
    passages = [(passage["text"], passage["places"][0]["line"]) for passage in table["passages"]]
    assert passages == [("price = item.price * (1 -", 3), ("source.balance < amount", 2)]


def test_any_piece_of_a_file_is_found_where_it_was_cut_from(run, shop):
    """Whatever tokens the cut goes through."""
    chance = random.Random(7)
    for _ in range(8):
        start = chance.randrange(len(SHOP) - 30)
        piece = SHOP[start : start + chance.randrange(12, len(SHOP) - start)].strip()
        (own, *_) = json.loads(run("ngrams", "why", "--json", piece))["tables"]
        (passage,) = own["passages"]
        assert passage["text"].strip() == piece
        at = SHOP.index(piece)
        place = SHOP.count("\n", 0, at) + 1, at - (SHOP.rfind("\n", 0, at) + 1) + 1
        found = [(spot["line"], spot["column"]) for spot in passage["places"] if spot["file"].endswith("shop.py")]
        assert place in found


def test_what_stands_nowhere_is_attributed_to_no_file(run, shop):
    output = run("ngrams", "why", "zebra.gallop(over=the_hills)")
    assert output.startswith("shop: 0% stands in its files\n")
    assert ".py:" not in output


def test_a_file_that_changed_since_is_said_to(run, shop):
    (shop / "copy.py").write_text("gone = 1\n")
    (shop / "shop.py").unlink()
    output = run("ngrams", "why", "return self.register.record(price, item)")
    lines = [line for line in output.splitlines() if "(price, item)" in line]
    assert [line.strip().split(":")[0] for line in lines[1:]] == ["bank.py", "copy.py", "shop.py"]
    assert [line.endswith("(the file has changed since)") for line in lines[1:]] == [False, True, True]


def test_an_imported_table_tells_what_stands_in_it_and_knows_no_files(run, shop, tmp_path):
    run("ngrams", "export", "shop", tmp_path / "team.ngt")
    run("ngrams", "import", tmp_path / "team.ngt")
    output = run("ngrams", "why", "return self.register.record(price, item)", "--name", "team")
    assert output == "team: 100% stands in its files\n  return self.register.record(price, item)\n"


def test_a_table_of_another_model_is_not_asked(run, shop, registry):
    registry.install("other", [writer(5, 7)], roots=[shop])
    assert "other was not asked: it was built for another model" in run("ngrams", "why", "return self")
    assert json.loads(run("ngrams", "why", "return self", "--json"))["skipped"] == ["other"]


def test_what_cannot_be_answered_is_one_sentence(run, shop, tmp_path, monkeypatch):
    assert "TEXT is empty" in run("ngrams", "why", "  ", status=1)
    assert "named 'nothing'" in run("ngrams", "why", "x", "--name", "nothing", status=1)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert f"no n-gram table serves {empty}; run spd-lsp build-ngrams there" in run("ngrams", "why", "x", status=1)


def test_all_shards_of_a_table_are_asked(run, shop, monkeypatch):
    monkeypatch.setattr("ngram_builders.build.SHARD_TOKENS", 60)
    (shop / "copy.py").write_text("def gallop(zebra):\n    return zebra.over(the_hills)\n", encoding="utf-8")
    run("build-ngrams", shop)
    assert "shards     3" in run("ngrams", "show", "shop")
    [tokens] = re.findall(r"tokens +([\d,]+)", run("ngrams", "show", "shop"))
    assert re.search(rf"n-grams shop +{tokens} tokens, .* in 3 files, checksums match", run("doctor"))
    lines = run("ngrams", "why", "return self.register.record(price, item)").splitlines()
    assert [line.strip().split(":")[0] for line in lines[2:4]] == ["bank.py", "shop.py"]
    assert lines[1].endswith("2 places, 2 files")
    assert "copy.py:2:5: return zebra.over(the_hills)" in run("ngrams", "why", "return zebra.over(the_hills)")

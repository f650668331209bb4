"""`ngrams why` names the tables, files and lines that a text stands in, and claims no others."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from pathlib import Path

import pytest

from ngram_builders.attribution import Query, attribute
from ngram_builders.sources.filters import decode_source
from ngram_builders.table.reader import Table
from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER
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
    assert re.fullmatch(
        r"shop: 100% stands in its files; \d+ of \d+ tokens end n-grams of 3 or more, up to 6", lines[0]
    )
    assert lines[1].split("   ")[0].strip() == "return self.register.record(price, item)"
    assert lines[1].endswith("3 places, 3 files")
    source = "return self.register.record(price, item)"
    assert lines[2:5] == [
        f"    {file}:{line}:{column}: {source}"
        for file, line, column in (("bank.py", 4, 5), ("copy.py", 4, 5), ("shop.py", 4, 9))
    ]
    assert re.match(r"python \(built in\): .*; its texts are not kept here, so no files are known", lines[5])


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


SOURCES = Path(__file__).parents[2] / "ngram_builders" / "sources"


@pytest.mark.slow
def test_as_many_places_are_named_as_a_search_in_the_files_finds(run, registry, tmp_path):
    """However a text was cut into tokens there: what stands before it, and behind it, decides that."""
    folder = tmp_path / "sources"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    run("build-ngrams", folder)
    [table], tokens = registry.tables(), ModelTokenizer(STARTER)
    tables, files = (
        [Table.open(path) for path in table.paths],
        [(decode_source(path.read_bytes(), "")[0] or "").encode() for path in folder.rglob("*.py")],  # masked
    )
    lines, chance, asked = b"".join(files).decode().splitlines(), random.Random(29), 0
    while asked < 50:
        words = re.findall(r"\w+|\W", chance.choice(lines).strip())
        first = chance.randrange(max(1, len(words) - 2))
        text = "".join(words[first : first + chance.randrange(2, 12)]).strip()
        if sum(content.count(text.encode()) for content in files) and len(text) > 3:
            query = Query.of(tokens.encode(text), tokens.bytes_of)
            found = attribute(query, tables, table, tokens.bytes_of).passages
            assert [len(one.spots) for one in found] == [sum(content.count(text.encode()) for content in files)], (
                text
            )
            asked += 1


def test_what_stands_nowhere_is_attributed_to_no_file(run, shop):
    output = run("ngrams", "why", "zebra.gallop(over=the_hills)")
    assert output.startswith(
        "shop: 0% stands in its files; none of its n-grams of 3 tokens or more is in the text"
    )
    assert ".py:" not in output


def test_a_file_that_changed_since_is_said_to(run, shop):
    (shop / "copy.py").write_text("gone = 1\n")
    (shop / "shop.py").unlink()
    output = run("ngrams", "why", "return self.register.record(price, item)")
    lines = [line for line in output.splitlines() if "(price, item)" in line]
    assert [line.strip().split(":")[0] for line in lines[1:]] == ["bank.py", "copy.py", "shop.py"]
    assert [line.endswith("(the file has changed since)") for line in lines[1:]] == [False, True, True]


def test_an_imported_table_tells_what_its_ngrams_hold(run, shop, tmp_path):
    run("ngrams", "export", "shop", tmp_path / "team.ngt")
    run("ngrams", "import", tmp_path / "team.ngt")
    output = run("ngrams", "why", "return self.register.record(price, item)", "--name", "team")
    assert re.fullmatch(
        r"team: \d+ of \d+ tokens end n-grams of 3 or more, up to 6; its texts are not kept here, .*\n", output
    )


def test_a_table_of_another_model_is_not_asked(run, shop, registry):
    registry.install("other", writer(5, 7), roots=[shop])
    assert "other was not asked: it was built for another model" in run("ngrams", "why", "return self")
    assert json.loads(run("ngrams", "why", "return self", "--json"))["skipped"] == ["other"]


def test_what_cannot_be_answered_is_one_sentence(run, shop, tmp_path, monkeypatch):
    assert "TEXT is empty" in run("ngrams", "why", "  ", status=1)
    assert "named 'nothing'" in run("ngrams", "why", "x", "--name", "nothing", status=1)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert f"no n-gram table serves {empty}; run spd-lsp build-ngrams there" in run("ngrams", "why", "x", status=1)
    assert "python (built in): " in run("ngrams", "why", "import os", "--file", Path("x.py"))


def test_what_was_written_beside_a_table_is_asked_with_it(run, shop):
    (shop / "large.py").write_text("".join(f"value_{i} = compute({i})\n" for i in range(400)), encoding="utf-8")
    run("build-ngrams", shop)
    (shop / "copy.py").write_text("def gallop(zebra):\n    return zebra.over(the_hills)\n", encoding="utf-8")
    run("ngrams", "rebuild", "--incremental", "shop")
    assert "segments   1, with what changed since" in run("ngrams", "show", "shop")
    [tokens] = re.findall(r"tokens +([\d,]+)", run("ngrams", "show", "shop"))
    assert re.search(rf"n-grams shop +{tokens} tokens, .* in 2 files, checksums match", run("doctor"))
    lines = run("ngrams", "why", "return self.register.record(price, item)").splitlines()
    assert [line.strip().split(":")[0] for line in lines[2:4]] == ["bank.py", "shop.py"]
    assert lines[1].endswith("2 places, 2 files")
    assert "copy.py:2:5: return zebra.over(the_hills)" in run("ngrams", "why", "return zebra.over(the_hills)")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such names")
def test_a_name_with_a_line_end_stays_on_its_line(run, shop):
    (shop / "new\nline.py").write_text(BANK.replace("transfer", "move_all"), encoding="utf-8")
    run("build-ngrams", shop)
    lines = run("ngrams", "why", "def move_all(source, target, amount):").splitlines()
    assert any(line.startswith("    new\\nline.py:1:1: def move_all") for line in lines)

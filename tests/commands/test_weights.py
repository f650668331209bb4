"""A table's weight bounds what it changes: `ngrams use NAME=WEIGHT`, as a completion with the starter shows it."""

from __future__ import annotations

import json

import pytest

LIBRARY = """from lib.errors import InvalidTemplateLibrary


def load{0}(name, library, parent, origin):
    if name not in library:
        raise InvalidTemplateLibrary("no library of that name: %s" % name)
"""
SHOP = """from shop.errors import ImproperlyConfigured


def find(name, library):
    if name not in library:
        raise Im
"""


@pytest.mark.slow
def test_what_a_table_alone_knows_is_offered_as_its_weight_says(tmp_path, invoke, monkeypatch):
    for name in ("lib", "shop"):
        (tmp_path / name).mkdir()
    for number in range(2):
        (tmp_path / "lib" / f"{number}.py").write_text(LIBRARY.format(number), encoding="utf-8")
    (tmp_path / "shop" / "a.py").write_text(SHOP, encoding="utf-8")
    invoke("build-ngrams", tmp_path / "lib")
    monkeypatch.chdir(tmp_path / "shop")
    copied, first = [], []
    for weight in (0.05, 0.3, 1):
        invoke("ngrams", "use", f"lib={weight}", "--add")
        found = json.loads(invoke("complete", "a.py:6:15", "--json").stdout)["completions"]
        copied.append(next(one["probability"] for one in found if one["text"].startswith("InvalidTemplate")))
        first.append(found[0]["text"].partition("(")[0])
    assert copied[0] == pytest.approx(copied[2] * 0.05 / 0.7, rel=0.2)
    assert copied[0] < copied[1] < copied[2]
    assert (first[0], first[2]) == ("ImproperlyConfigured", "InvalidTemplateLibrary")

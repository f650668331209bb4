"""`ngrams which` names the tables that serve a file, with their weights and reasons, and what they say in it."""

from __future__ import annotations

import json

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER
from tests.ngram_builders.small_tables import names, writer

SHOP = "def sell(item):\n    return register.record(item)\n" * 3


@pytest.fixture
def shop(tmp_path, run, registry):
    """A folder with a table of its own, and three others."""
    folder = tmp_path / "shop"
    (folder / "inner").mkdir(parents=True)
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    run("build-ngrams", folder)
    fingerprint = ModelTokenizer(STARTER).fingerprint
    for name in ("team", "all", "package@1"):
        registry.install(name, writer(5, 6, fingerprint=fingerprint))
    return folder


def test_each_table_has_its_weight_and_its_reason(run, registry, shop):
    registry.assign_dependencies(shop, [("package@1", 0.4)])
    run("ngrams", "use", "team", "--add", "--workspace", shop)
    run("ngrams", "use", "all", "--language", "python")
    file = shop / "inner" / "new.py"  # which need not exist
    lines = run("ngrams", "which", file).splitlines()
    assert [line.split(maxsplit=2) for line in lines[:-1]] == [
        ["shop", "0.7", f"built from {shop}"],
        ["package@1", "0.4", f"{shop} depends on it"],
        ["all", "0.05", "chosen for python files; weight learnt from 0 accepted tokens here, from 0.05 on"],
        ["team", "0.05", f"added to {shop}; weight learnt from 0 accepted tokens here, from 0.05 on"],
    ]
    assert lines[-1].split(maxsplit=2) == ["python", "0.1", "built in: comes with starter"]
    found = json.loads(run("ngrams", "which", file, "--json"))
    served = [(one["table"], one["weight"]) for one in found["tables"][:-1]]
    assert served == names(registry.tables_for(file, "python"))
    run("ngrams", "use", "team=0.5", "--workspace", shop, "--replace")
    assert run("ngrams", "which", file).splitlines()[0].split(maxsplit=2) == ["team", "0.5", f"chosen for {shop}"]


def test_at_a_place_each_table_says_what_follows(run, shop):
    found = json.loads(run("ngrams", "which", f"{shop / 'shop.py'}:2:12", "--json"))
    own = found["tables"][0]
    assert (own["table"], own["next"][0]["text"], own["next"][0]["share"]) == ("shop", " register", 1.0)
    assert own["context"] >= 4
    shown = run("ngrams", "which", f"{shop / 'shop.py'}:2:12").splitlines()
    decides = f"decides up to {own['decides']:.1%}; "
    assert shown[1].strip() == f'{decides}after {own["context"]} tokens: " register" 100%'
    for weight in ("0.05", "0.3"):
        run("ngrams", "use", f"shop={weight}", "--workspace", shop, "--replace")
        found = json.loads(run("ngrams", "which", f"{shop / 'shop.py'}:2:12", "--json"))
        assert found["tables"][0]["decides"] == pytest.approx(own["decides"] * float(weight) / 0.7, rel=0.2)


def test_what_serves_nothing_is_said(run, registry, shop, tmp_path):
    registry.install("foreign", writer(5, fingerprint="a1b2"), roots=[tmp_path], recipe={"model": "/models/Tiny"})
    output = run("ngrams", "which", tmp_path / "a.py")
    assert "n-gram table foreign was built for Tiny, and starter has another tokenizer; run: spd-lsp" in output
    assert f"no n-gram table serves {tmp_path / 'x.unknown'}" in run(
        "ngrams", "which", tmp_path / "x.unknown", "--model", "none", status=1
    )
    assert "nothing is completed in .env: " in run("ngrams", "which", ".env", status=1)

"""`ngrams which` names the tables that serve a file, with their weights and reasons."""

from __future__ import annotations

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER
from tests.ngram_builders.small_tables import writer

SHOP = "def sell(item):\n    return register.record(item)\n" * 3


@pytest.fixture
def shop(tmp_path, run, registry):
    """A folder with a table of its own, and two others."""
    folder = tmp_path / "shop"
    (folder / "inner").mkdir(parents=True)
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    run("build-ngrams", folder)
    fingerprint = ModelTokenizer(STARTER).fingerprint
    for name in ("team", "all"):
        registry.install(name, [writer(5, 6, fingerprint=fingerprint)])
    return folder


def test_each_table_has_its_weight_and_its_reason(run, registry, shop):
    run("ngrams", "use", "all", "--language", "python")
    file = shop / "inner" / "new.py"  # which need not exist
    lines = run("ngrams", "which", file).splitlines()
    assert [line.split(maxsplit=2) for line in lines] == [
        ["shop", "0.7", f"built from {shop}"],
        ["all", "0.3", "chosen for python files"],
    ]
    run("ngrams", "use", "team=0.5", "--workspace", shop)
    assert run("ngrams", "which", file).splitlines()[0].split(maxsplit=2) == ["team", "0.5", f"chosen for {shop}"]


def test_what_serves_nothing_is_said(run, registry, shop, tmp_path):
    write = writer(5, fingerprint="a1b2")
    registry.install("foreign", [write], roots=[tmp_path], recipe={"model": "/models/Tiny"})
    output = run("ngrams", "which", tmp_path / "a.py", status=1)
    assert "n-gram table foreign was built for Tiny, and starter has another tokenizer; run: spd-lsp" in output
    assert f"no n-gram table serves {tmp_path / 'x.unknown'}" in run(
        "ngrams", "which", tmp_path / "x.unknown", "--model", "none", status=1
    )
    assert "nothing is completed in .env: " in run("ngrams", "which", ".env", status=1)

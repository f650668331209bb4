"""What ships names what it was made from, as the licences ask."""

from __future__ import annotations

import json

from spd_lsp.training import notice as module
from spd_lsp.training.notice import notice
from tests.conftest import STARTER

TRAINING = json.loads((STARTER / "training.json").read_bytes())


def test_the_notice_beside_the_model_is_that_of_its_training():
    assert (STARTER / "NOTICE").read_text(encoding="utf-8") == notice(TRAINING), (
        "run: python -m spd_lsp.training.notice"
    )


def test_it_names_every_package_that_was_read_with_its_licence():
    lines = set(notice(TRAINING).splitlines())
    assert len(TRAINING["sources"]) > 300
    for source in TRAINING["sources"]:
        assert source["licence"]
        assert f"  {source['name']} {source['version']}: {source['licence']}" in lines


def test_what_was_left_out_is_not_named_and_a_base_model_is(monkeypatch):
    source = {"name": "a", "version": "1", "licence": "MIT", "language": "c", "skipped": ""}
    left_out = source | {"name": "b", "skipped": "no permissive licence"}
    monkeypatch.setattr(module, "_BASE_MODELS", ["Base, by its authors: Apache-2.0"])
    text = notice({"sources": [source, left_out]})
    assert "c:\n  a 1: MIT\n" in text and "  b 1" not in text
    assert "  Base, by its authors: Apache-2.0\n" in text

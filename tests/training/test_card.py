"""What ships names what it was made from, as the licences ask."""

from __future__ import annotations

import json

from spd_lsp.training.card import card, notice
from tests.conftest import PACKAGE

STARTER = PACKAGE / "starter"
TRAINING = json.loads((STARTER / "training.json").read_bytes())


def test_card_and_notice_beside_the_model_are_those_of_its_training() -> None:
    assert (STARTER / "MODEL_CARD.md").read_text(encoding="utf-8") == card(TRAINING)
    assert (STARTER / "NOTICE").read_text(encoding="utf-8") == notice(TRAINING)


def test_every_package_that_was_read_is_named_with_its_licence() -> None:
    lines = set(notice(TRAINING).splitlines())
    assert len(TRAINING["sources"]) > 300
    for source in TRAINING["sources"]:
        assert source["licence"]
        assert f"  {source['name']} {source['version']}: {source['licence']}" in lines
    assert "  SmolLM2-135M-Instruct, by Hugging Face: Apache-2.0" in lines

"""Drafts that are chosen from a few logits are those chosen from all of them."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.topk import select_top_k
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.transformers_engine import TransformersEngine
from spd_lsp.ngrams.interpolation import Domains
from spd_lsp.settings import Settings
from tests.conftest import STARTER, STARTER_FILES

CODE = [
    "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return",
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.",
    "class Point:\n    def __init__(self, x, y):\n        self.x",
]


@pytest.fixture(scope="module")
def tokens():
    return ModelTokenizer(STARTER)


@pytest.fixture(scope="module")
def selecting(starter_network):
    """The starter as a GPU would run it."""
    engine = TorchEngine(convert(starter_network))
    engine.selects_on_device = True
    return engine


@pytest.mark.parametrize("decoding", ["linear", "paper", "no n-grams"])
@pytest.mark.parametrize("tau", [1.0, 0.5])
def test_the_starters_drafts_are_the_same(tokens, selecting, starter_network, decoding, tau):
    domains = Domains(None, tokens.fingerprint, {"python": STARTER_FILES / "python.ngt"})
    mixture = None if decoding == "no n-grams" else domains.mixture_for(None, "python")
    rule = "paper" if decoding == "paper" else "linear"
    settings = Settings(drafts=3, max_tokens=8, temperature=tau, interpolation=rule)
    whole = TransformersEngine(starter_network)
    for code in CODE:
        ids = tokens.encode(code)
        start = DecodingRequest(ids, stop=lambda found: False, history=ids[-16:], interpolation=mixture)
        few, all_of_them = superpose(selecting, start, settings), superpose(whole, start, settings)
        assert [draft.ids for draft in few.best] == [draft.ids for draft in all_of_them.best]
        np.testing.assert_allclose(
            [draft.score for draft in few.best], [draft.score for draft in all_of_them.best], atol=1e-3
        )
        assert few.passes == all_of_them.passes


def test_a_token_that_the_model_does_not_have_is_ruled_out():
    found = select_top_k(np.array([1.0, 3.0, 2.0]), 2, np.array([0, 3]), 1.0)
    assert found.ids.tolist() == [1, 2]
    assert found.extra_logits.tolist() == [1.0, -np.inf]
    assert found.log_z == pytest.approx(np.log(np.exp([1.0, 3.0, 2.0]).sum()))

"""Every contender writes what was options, from a cold prompt, and says what it took."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.bench.contenders import CONTENDERS, SINGLE, BenchSetup, contender_keys
from spd_lsp.evaluation.bench.setup import BenchOptions, _own_ngrams, prepare
from spd_lsp.models.self_test import kl_divergence
from tests.conftest import STARTER, TinyModel

TEXT = "import os\n\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n"
TOKENS = 4


@pytest.fixture(scope="module")
def setup(starter_network) -> BenchSetup:
    options = BenchOptions(STARTER, "starter", "cpu", TEXT, (1, 3), TOKENS, 1, 1, False)
    found = prepare(options, ["engine", "transformers"])
    found.network = starter_network  # transformers reads no GGUF file
    return found


@pytest.mark.parametrize("name", CONTENDERS)
def test_each_contender_gives_its_times_and_counts(name, setup):
    found = CONTENDERS[name](setup, 3)
    assert found.tokens == TOKENS
    assert found.first.wall > 0
    assert found.rest.wall > 0
    if name == "best-first":
        assert TOKENS <= found.passes == found.rows + 1 <= 2 * TOKENS
    else:
        assert found.passes == TOKENS
        alone = name == "superposed" or name in SINGLE
        assert found.rows == (1 if alone else 3) * (TOKENS - 1)


def test_one_superposed_draft_without_ngrams_costs_the_passes_of_greedy(setup):
    alike = [CONTENDERS["superposed"](setup, 1), CONTENDERS["greedy"](setup, 1)]
    assert len({(one.passes, one.rows) for one in alike}) == 1


def test_only_decoders_of_the_product_look_up_ngrams(setup):
    shares = {name: CONTENDERS[name](setup, 3).ngrams.wall for name in CONTENDERS}
    assert [name for name, seconds in shares.items() if seconds] == ["superposed", "best-first"]


def test_what_the_model_and_ngrams_take_is_a_part_of_the_whole(setup):
    found = CONTENDERS["superposed"](setup, 3)
    assert 0 < found.ngrams.wall < found.rest.wall
    assert 0 < found.model.wall < found.rest.wall - found.ngrams.wall


@pytest.mark.parametrize("name", ["superposed", "greedy"])
def test_a_contender_reads_the_whole_prompt_again_each_time(name):
    model = TinyModel()
    cut = []
    model.prompts, model.crop = ["another text's", "this one"], cut.append
    CONTENDERS[name](BenchSetup(model, None, (1, 2, 3), TOKENS), 2)
    assert cut == [0]
    assert model.prompts == ["this one"]
    assert model.passes == TOKENS


def test_the_engine_and_transformers_hold_the_same_weights(setup):
    """But for the precision of their products."""
    import torch

    ids = torch.tensor([setup.prompt])
    with torch.inference_mode():
        theirs = setup.network(input_ids=ids).logits[0, -1].float().numpy()
    ours = setup.model.prefill(setup.prompt)
    assert kl_divergence(ours[None], theirs[None]) < 1e-2


def test_ngrams_know_this_packages_own_code():
    tokens = ModelTokenizer(STARTER)
    mixture = _own_ngrams(BenchOptions(STARTER, "starter", "cpu", TEXT, (1,), 2, 1, 1, False), tokens)
    ids = tokens.encode("from spd_lsp.settings import Settings, UserError")
    assert mixture([ids[:-1]], np.array(ids[-1:]))[0, 0] > 0


def test_contenders_are_one_draft_once_and_the_others_for_each_k():
    found = contender_keys([1, 3])
    assert [key for key in found if key[0] in SINGLE] == [(name, 1) for name in SINGLE]
    assert ("superposed", 1) in found
    assert ("beam", 1) not in found
    assert {name for name, k in found if k == 3} == set(CONTENDERS) - set(SINGLE)

"""Every contender writes what was options, from a cold prompt, and says what it took."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.bench.contenders import CONTENDERS, LLAMA_CPP, SINGLE, BenchSetup, contender_keys
from spd_lsp.evaluation.bench.machine import MAX_MATRIX_BYTES, WeightReader
from spd_lsp.evaluation.bench.setup import BenchOptions, _own_ngrams, load_llama_cpp, prepare, weight_bytes
from spd_lsp.models.self_test import kl_divergence
from tests.conftest import STARTER, STARTER_FILE, TinyModel

TEXT = "import os\n\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n"
TOKENS = 4


@pytest.fixture(scope="module")
def setup(starter_network) -> BenchSetup:
    options = BenchOptions(STARTER, "starter", "cpu", TEXT, (1, 3), TOKENS, 1, 1, False)
    found = prepare(options, ["engine", "transformers", "reading"])
    found.llama_cpp, message = load_llama_cpp(found, options)
    assert "4 of 4 tokens" in message
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
    elif name != "reading":
        assert found.passes == TOKENS
        alone = name == "superposed" or name in SINGLE
        assert found.rows == (1 if alone else 3) * (TOKENS - 1)


def test_one_superposed_draft_without_ngrams_costs_the_passes_of_greedy(setup):
    alike = [CONTENDERS["superposed"](setup, 1), CONTENDERS["greedy"](setup, 1)]
    assert len({(one.passes, one.rows) for one in alike}) == 1


def test_only_decoders_of_the_product_look_up_ngrams(setup):
    shares = {name: CONTENDERS[name](setup, 3).ngrams.wall for name in CONTENDERS if name != LLAMA_CPP}
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


def test_the_limit_reads_as_many_bytes_as_the_weights_take(setup):
    matrix = setup.reader.matrix
    assert abs(setup.reader.times * matrix.numel() * matrix.element_size() - STARTER_FILE.stat().st_size) <= 4096
    weights = 4 * sum(one.numel() for one in setup.network.parameters())
    assert weight_bytes(setup.network) == weights  # embeddings are tied


def test_a_large_model_does_not_need_its_memory_twice():
    reader = WeightReader(10 * MAX_MATRIX_BYTES + 5, "cpu")
    assert reader.matrix.numel() * 4 <= MAX_MATRIX_BYTES
    assert reader.times * reader.matrix.numel() * 4 == pytest.approx(10 * MAX_MATRIX_BYTES, rel=1e-3)


def test_input_embeddings_that_serve_nothing_else_are_not_read_for_a_token():
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"vocab_size": 50, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    network = LlamaForCausalLM(LlamaConfig(**shape, **heads, tie_word_embeddings=False))
    assert weight_bytes(network) == 4 * (sum(one.numel() for one in network.parameters()) - 50 * 8)


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


def test_who_is_left_out_does_not_contend_and_llama_cpp_is_timed_with_one_row_as_well():
    assert (LLAMA_CPP, 1) in contender_keys([1, 3])
    assert LLAMA_CPP not in {name for name, _ in contender_keys([1, 3], [LLAMA_CPP])}

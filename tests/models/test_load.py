"""The model: mixed embeddings in, logits out; the cache holds what prompts share and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM as Auto
from transformers import (
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    Starcoder2Config,
    T5Config,
)

from ngram_builders.errors import UserError
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.base import PREFILL_CHUNK
from spd_lsp.models.load import load
from spd_lsp.models.logits import log_softmax
from spd_lsp.models.open_checkpoint import set_thread_count
from spd_lsp.models.threads import TRIAL_STEPS
from spd_lsp.models.transformers_engine import TransformersEngine
from spd_lsp.settings import Settings

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
FAMILIES = [
    LlamaConfig(**GROUPED),
    Qwen2Config(**GROUPED),
    MistralConfig(**GROUPED, sliding_window=64),
    Gemma2Config(**GROUPED, head_dim=8, sliding_window=64),
    Starcoder2Config(**GROUPED, sliding_window=64),
    GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=512),
]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda config: config.model_type)
def network(request):
    torch.manual_seed(0)
    return Auto.from_config(request.param).eval()


def ids_of(length, seed=0):
    return np.random.default_rng(seed).integers(3, 96, length).tolist()


def plain_logits(network, ids):
    with torch.inference_mode():
        return network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float().numpy()


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_step_with_one_token_reads_that_token(network):
    model = TransformersEngine(network)
    ids = ids_of(20)
    model.prefill(ids)
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids, 7]))
    close(model.step([9], np.ones(1)), plain_logits(network, [*ids, 7, 9]))


def test_a_superposed_step_reads_the_weighted_sum_of_the_embeddings(network):
    model = TransformersEngine(network)
    ids = ids_of(6)
    model.prefill(ids)
    embed = network.get_input_embeddings()
    with torch.inference_mode():
        mixed = 0.75 * embed(torch.tensor([5])) + 0.25 * embed(torch.tensor([11]))
        whole = torch.cat([embed(torch.tensor(ids)), mixed])[None]
        expected = network(inputs_embeds=whole, use_cache=False).logits[0, -1].float().numpy()
    close(model.step([5, 11], np.array([0.75, 0.25])), expected)


@pytest.mark.parametrize("change", [0, 1, 40, 150, 199])
def test_a_reused_prefix_gives_what_a_cold_run_gives(network, change):
    model = TransformersEngine(network)
    first = ids_of(200)
    second = [*first[:change], *ids_of(30, seed=1)]
    model.prefill(first)
    model.step([5, 11], np.array([0.5, 0.5]))
    close(model.prefill(second), plain_logits(network, second))
    close(model.prefill(first), plain_logits(network, first))


def one_row(network, ids, steps):
    """The logits after each of a row's steps, read alone after a prefill."""
    model = TransformersEngine(network)
    model.prefill(ids)
    return [model.step(mixed, np.asarray(weights)) for mixed, weights in steps]


def test_rows_are_what_each_row_alone_would_be(network):
    ids = ids_of(20)
    rows = [([5], [1.0]), ([7], [1.0]), ([5, 11], [0.75, 0.25])]
    later = [([8], [1.0]), ([9, 3], [0.5, 0.5]), ([5], [1.0])]
    model = TransformersEngine(network)
    model.prefill(ids)
    first = model.step_rows(rows, [0, 0, 0])
    second = model.step_rows(later, [0, 1, 2])
    for i in range(3):
        alone = one_row(network, ids, [rows[i], later[i]])
        close(first[i], alone[0])
        close(second[i], alone[1])


def test_a_row_goes_on_from_its_parent(network):
    ids = ids_of(20)
    rows = [([token], [1.0]) for token in (5, 7, 9)]
    later = [([token], [1.0]) for token in (11, 12)]
    model = TransformersEngine(network)
    model.prefill(ids)
    model.step_rows(rows, [0, 0, 0])
    found = model.step_rows(later, [2, 2])  # fewer rows than before
    for i, step in enumerate(later):
        close(found[i], one_row(network, ids, [rows[2], step])[1])
    last = model.step_rows(rows, [1, 0, 1])  # and more
    close(last[2], one_row(network, ids, [rows[2], later[1], rows[2]])[2])


def test_drafts_read_at_once_are_read_token_by_token(network):
    ids = ids_of(20)
    drafts = [ids_of(4, seed=1), ids_of(1, seed=2), ids_of(7, seed=3)]
    model = TransformersEngine(network)
    logits = model.prefill(ids)
    model.step([3], np.ones(1))  # what was written after the prompt does not count
    found = model.score_drafts(drafts)
    for draft, logp in zip(drafts, found, strict=True):
        after = [logits, *one_row(network, ids, [([token], [1.0]) for token in draft[:-1]])]
        close(logp, [log_softmax(each)[token] for each, token in zip(after, draft, strict=True)])


@pytest.mark.parametrize("n", [1, 3])
def test_drafts_of_one_token_take_no_pass(network, n):
    model = TransformersEngine(network)
    logits = model.prefill(ids_of(5))
    for found in model.score_drafts([[7]] * n):
        close(found, [log_softmax(logits)[7]])


def test_after_rows_and_drafts_the_cache_holds_the_prompt(network):
    ids = ids_of(20)
    longer = [*ids, 4, 5, 6]
    model = TransformersEngine(network)
    model.prefill(ids)
    model.step_rows([([5], [1.0]), ([7], [1.0])], [0, 0])
    model.score_drafts([[3, 4, 5], [6, 7, 8]])
    assert model.prompts[-1].ids == ids
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids, 7]))
    model.step_rows([([5], [1.0]), ([7], [1.0])], [0, 0])
    expected = plain_logits(network, longer)
    assert passes(model, lambda: close(model.prefill(longer), expected)) == [3]


def test_the_same_prompt_takes_no_pass(network):
    model = TransformersEngine(network)
    ids = ids_of(20)
    cold = model.prefill(ids)
    model.step([5], np.ones(1))
    assert passes(model, lambda: close(model.prefill(ids), cold)) == []
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids, 7]))


def passes(model, work):
    """How many positions each pass reads that some work takes."""
    lengths = []
    hook = model.network.register_forward_pre_hook(
        lambda module, args, inputs: lengths.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    work()
    hook.remove()
    return lengths


def test_one_draft_is_what_generate_gives_greedily(network):
    ids = ids_of(12)
    found = superpose(
        TransformersEngine(network), DecodingRequest(ids, lambda ids: False), Settings(drafts=1, max_tokens=10)
    )
    expected = network.generate(
        torch.tensor([ids]), do_sample=False, max_new_tokens=10, eos_token_id=None, pad_token_id=0
    )
    assert list(found.best[0].ids) == expected[0, len(ids) :].tolist()


def test_a_prefill_stopped_between_chunks_leaves_a_cache_that_holds(network):
    model = TransformersEngine(network)
    ids = ids_of(3 * PREFILL_CHUNK)
    calls = []

    class Stopped(Exception):
        pass

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise Stopped

    with pytest.raises(Stopped):
        model.prefill(ids, check)
    assert model.prompts[-1].ids == ids[: 2 * PREFILL_CHUNK]
    close(model.prefill(ids), plain_logits(network, ids))


def test_only_what_is_new_runs_through_the_model(network):
    model = TransformersEngine(network)
    ids = ids_of(100)
    model.prefill(ids)
    assert passes(model, lambda: model.prefill([*ids, 3, 4, 5, 6, 7])) == [5]


def test_a_saved_model_is_loaded_again(tmp_path):
    torch.manual_seed(1)
    network = Auto.from_config(FAMILIES[0]).eval()
    network.save_pretrained(tmp_path)
    close(load(tmp_path, "cpu").prefill([4, 5, 6]), plain_logits(network, [4, 5, 6]))


def test_a_state_space_model_is_refused_by_name(tmp_path):
    MambaConfig(vocab_size=96, hidden_size=16, num_hidden_layers=1).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="is a mamba model, whose state cannot be taken back"):
        load(tmp_path, "cpu")


def test_a_model_that_is_not_causal_is_refused(tmp_path):
    T5Config(vocab_size=96, d_model=16, num_layers=1).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"holds a t5 model, which is no causal language model"):
        load(tmp_path, "cpu")


def test_a_model_with_code_of_its_own_is_refused_and_the_code_not_run(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}})
    )
    (tmp_path / "code.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UserError, match="without running the model's own code"):
        load(tmp_path, "cpu")


def test_damaged_weights_are_named(tmp_path):
    network = Auto.from_config(FAMILIES[0])
    network.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match="could not be opened"):
        load(tmp_path, "cpu")


def test_a_device_that_is_not_there_is_named(tmp_path):
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(UserError, match=f"device '{missing}' is not available here, found: .*cpu"):
        load(tmp_path, missing)


def test_likelihoods_are_those_of_one_plain_pass_and_leave_the_cache_alone(network):
    model = TransformersEngine(network)
    prompt, read = ids_of(20), ids_of(30, seed=3)
    model.prefill(prompt)
    found = model.token_probabilities(read)
    with torch.inference_mode():
        p = network(input_ids=torch.tensor([read]), use_cache=False).logits[0].float().softmax(-1).numpy()
    np.testing.assert_allclose(found, [p[i, token] for i, token in enumerate(read[1:])], atol=1e-5)
    close(model.step([7], np.ones(1)), plain_logits(network, [*prompt, 7]))


def on_cuda(monkeypatch, free):
    """Make believe that there is a GPU with so much free memory."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1 << 40))


@pytest.fixture
def saved(tmp_path):
    Auto.from_config(FAMILIES[0]).save_pretrained(tmp_path)
    return tmp_path


def test_a_model_too_large_for_the_gpu_goes_to_the_cpu_and_says_so(monkeypatch, saved):
    on_cuda(monkeypatch, free=1000)
    said = []
    assert str(load(saved, "auto", said.append).device) == "cpu"
    assert "cuda has 0.0 GiB of free memory" in said[0]
    assert said[0].endswith("using the CPU")


def test_a_gpu_that_was_asked_for_by_name_is_not_replaced(monkeypatch, saved):
    on_cuda(monkeypatch, free=1000)
    with pytest.raises(UserError, match=r"cuda has 0\.0 GiB of free memory"):
        load(saved, "cuda")


def test_memory_that_ends_while_loading_sends_the_model_to_the_cpu(monkeypatch, saved):
    on_cuda(monkeypatch, free=1 << 40)
    loads = Auto.from_pretrained

    def fails_on_the_gpu(*args, dtype, **options):
        if dtype != torch.float32:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loads(*args, dtype=dtype, **options)

    monkeypatch.setattr(Auto, "from_pretrained", fails_on_the_gpu)
    said = []
    assert str(load(saved, "auto", said.append).device) == "cpu"
    assert "does not fit into the memory of cuda" in " ".join(said)


def test_a_model_too_large_for_memory_is_refused_with_numbers(monkeypatch, saved):
    monkeypatch.setattr("spd_lsp.models.open_checkpoint.free_memory", lambda: 1000)
    with pytest.raises(UserError, match=r"cpu has 0\.0 GiB of free memory; choose a smaller"):
        load(saved, "cpu")


@pytest.mark.parametrize(("size", "tried"), [(1000, [1]), (10**9, [1, 2, 4])])
def test_only_what_is_large_is_tried_with_more_threads(monkeypatch, size, tried):
    used = []
    monkeypatch.setattr("spd_lsp.models.open_checkpoint.CORES", 8)
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    model = TransformersEngine(Auto.from_config(FAMILIES[0]))
    set_thread_count(model, size)
    for _ in range(TRIAL_STEPS * len(tried) - 1):
        model.on_step(1.0)
    assert used == tried


def test_steps_are_timed_to_choose_threads():
    model = TransformersEngine(Auto.from_config(FAMILIES[0]))
    model.prefill([3, 4, 5])
    heard = []
    model.on_step = heard.append
    model.step([7], np.ones(1))
    assert len(heard) == 1

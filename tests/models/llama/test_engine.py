"""A GGUF model through llama.cpp: its own logits and greedy text, mixtures of embeddings, and caches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ngram_builders.errors import UserError
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.models.hub import locate
from spd_lsp.models.llama.engine import Stopped
from spd_lsp.models.load import load
from tests.models.llama.gguf_files import SHAPE, transformers_weights

ONE = np.ones(1)
PROMPT = [5, 6, 700, 8, 9, 1000]
LONG = [(31 * number + 7) % 900 for number in range(60)]
KINDS = ["F32", "F16", "Q8_0", "Q4_K"]
ROUNDING = 0.05  # of logits up to about six; llama.cpp keeps keys and values in half precision


@pytest.fixture(params=KINDS)
def file(request, gguf_folder):
    return gguf_folder / f"{request.param}.gguf"


@pytest.fixture
def engine(gguf_folder):
    return load(locate(str(gguf_folder / "F32.gguf")))


def greedy(engine, tokens):
    ids = [int(engine.prefill(PROMPT).argmax())]
    while len(ids) < tokens:
        ids.append(int(engine.step(ids[-1:], ONE).argmax()))
    return ids


@pytest.mark.parametrize("size", [4096, 1 << 27])
def test_a_file_that_changes_while_it_is_used_is_no_longer_mixed_with(gguf_folder, tmp_path, size):
    used = tmp_path / "used.gguf"
    used.write_bytes((gguf_folder / "F32.gguf").read_bytes())
    engine = load(locate(str(used)))
    engine.prefill(PROMPT)
    os.truncate(used, size)
    assert engine.step([5], ONE).shape == (SHAPE["vocab_size"],)  # the weights are in memory
    with pytest.raises(UserError, match=r"used\.gguf was changed while it was open; fetch it again and restart"):
        engine.step([5, 6], np.array([0.5, 0.5]))


SERVED = """
import sys, xllamacpp
path, *prompt = sys.argv[1:]
options = xllamacpp.CommonParams()
options.model.path, options.n_ctx, options.warmup, options.cpuparams.n_threads = path, 512, False, 1
server = xllamacpp.Server(options)
asked = dict(prompt=[int(i) for i in prompt], n_predict=8, temperature=0, ignore_eos=True, cache_prompt=False)
print("TEXT:" + ascii(server.handle_completions(asked)["choices"][0]["text"]))
"""


def test_one_draft_is_llama_cpps_own_greedy_text(file):
    from spd_lsp.completion.tokenizer import ModelTokenizer

    command = [sys.executable, "-c", SERVED, str(file), *map(str, PROMPT)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    folder = locate(str(file))
    text = ModelTokenizer(folder).bytes_of(greedy(load(folder), 8)).decode("utf-8", "replace")
    assert f"TEXT:{text!a}" in printed.splitlines()


@pytest.fixture(scope="module")
def network():
    """The weights of F32.gguf in transformers."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(**SHAPE, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    model = Qwen2ForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(transformers_weights(), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model


def transformers_logits(network, ids, weights=()):
    """After the ids, the last of which are mixed if there are weights."""
    with torch.inference_mode():
        embeds = network.get_input_embeddings()(torch.tensor(ids))
        if len(weights):
            mixed = torch.as_tensor(weights, dtype=embeds.dtype) @ embeds[-len(weights) :]
            embeds = torch.cat([embeds[: -len(weights)], mixed[None]])
        return network(inputs_embeds=embeds[None]).logits[0, -1].numpy()


def test_logits_are_those_of_transformers_with_the_same_weights(engine, network):
    expected = transformers_logits(network, PROMPT)
    np.testing.assert_allclose(engine.prefill(PROMPT), expected, atol=ROUNDING)


def test_a_superposed_step_reads_the_mixed_embedding(engine, network):
    ids, weights = [11, 222, 3333], [0.5, 0.3, 0.2]
    engine.prefill(PROMPT)
    expected = transformers_logits(network, PROMPT + ids, weights)
    np.testing.assert_allclose(engine.step(ids, np.array(weights)), expected, atol=ROUNDING)
    assert np.abs(expected - transformers_logits(network, [*PROMPT, 11])).max() > 10 * ROUNDING


def test_several_drafts_are_read_at_once(engine, network):
    engine.prefill(PROMPT)
    for drafts in ([(11,), (22,)], [(22, 33), (22, 44), (11, 55)], [(22, 33, 66), (11, 55, 77)]):
        for logits, draft in zip(engine.read_drafts(drafts), drafts, strict=True):
            np.testing.assert_allclose(logits, transformers_logits(network, [*PROMPT, *draft]), atol=ROUNDING)


def test_drafts_go_on_from_any_that_were_read(engine, network):
    engine.prefill(PROMPT)
    drafts = [(11,), (22,), (11, 33), (22, 44), (11, 55), (11, 33, 66), (11, 55, 77), (22, 44, 88), (11, 33, 99)]
    for draft in drafts:
        expected = transformers_logits(network, [*PROMPT, *draft])
        np.testing.assert_allclose(engine.read_draft(draft), expected, atol=ROUNDING)


def test_sequences_are_given_back(engine):
    free = len(engine.context.free) + len(engine.context.dropped)
    for _ in range(3):
        engine.prefill(PROMPT)
        engine.read_drafts([(token,) for token in range(16)])
        for draft in ((1, 2), (1, 3), (2, 1), (2, 3)):
            engine.read_draft(draft)
    engine.crop(0)
    assert len(engine.context.free) + len(engine.context.dropped) == free


def test_several_editors_share_it(engine, network):
    """Each request runs in its own thread, and crops and forks while another's pass is computed."""
    shared, forward_batch, sizes = BatchScheduler(engine), engine.forward_batch, []
    engine.forward_batch = lambda inputs: sizes.append(len(inputs)) or forward_batch(inputs)

    def draft(token):
        own = shared.new_engine()
        for _ in range(5):
            own.prefill([*PROMPT, token])
            rows = own.read_drafts([(token,), (token + 1,)])
            own.step([token, 1], np.array([0.5, 0.5]))
        return rows[1]

    with ThreadPoolExecutor(4) as editors:
        drafted = list(editors.map(draft, [10, 20, 30, 40]))
    assert max(sizes) > 2, "two inputs are those of one editor"
    for token, logits in zip([10, 20, 30, 40], drafted, strict=True):
        engine.prefill([*PROMPT, token])
        np.testing.assert_allclose(logits, engine.step([token + 1], ONE), atol=ROUNDING)


@pytest.mark.parametrize("token", [-1, 1 << 20])
def test_an_id_the_model_does_not_have_is_an_error_and_not_the_end_of_the_process(token, engine):
    with pytest.raises(IndexError):
        engine.prefill([1, token])
    with pytest.raises(IndexError):
        engine.step([1, token], np.array([0.5, 0.5]))


class Gone(Exception):
    """Nobody waits any more."""


def test_a_pass_can_be_stopped_and_adds_nothing(gguf_folder):
    engine, other = (load(locate(str(gguf_folder / "F32.gguf"))) for _ in range(2))
    engine.prefill(LONG[:20])
    engine.context.stop.value = b"1"
    with pytest.raises(Stopped):
        engine.forward(LONG[20:], engine.prompts[-1].cache)
    engine.context.stop.value = b""
    expected = np.concatenate([other.prefill(LONG[:20])[None], other.prefill(LONG)[None]])
    np.testing.assert_array_equal(engine.prefill(LONG), expected[1])
    assert engine.positions_read == len(LONG)


def test_whoever_no_longer_waits_stops_the_pass_that_runs(engine, monkeypatch):
    """Without being asked between two chunks: one of a slow model takes a second."""
    asked = []

    def gone() -> None:
        asked.append(threading.current_thread().name)
        if len(asked) > 1:  # the first question comes before the pass
            raise Gone

    def endless(inputs):
        while not engine.context.stop.value:
            time.sleep(0.001)
        raise Stopped

    monkeypatch.setattr(engine, "forward_batch", endless)
    with pytest.raises(Gone):
        engine.prefill(LONG, gone)
    assert asked[1] != threading.current_thread().name
    assert not engine.context.stop.value
    monkeypatch.undo()
    assert np.isfinite(engine.prefill(LONG)).all()

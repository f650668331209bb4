"""The transformers engine: mixtures in, logits out; the cache holds what prompts share and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM as Auto
from transformers import Gemma2Config, LlamaConfig

from ngram_builders.errors import UserError
from spd_lsp.models.base import ForwardInput
from spd_lsp.models.torch.engine import TransformersEngine
from spd_lsp.models.torch.open_checkpoint import _compile_steps
from tests.models.networks import SMALL, ids_of, plain_logits

FAMILIES = [LlamaConfig(**SMALL), Gemma2Config(**SMALL, head_dim=8, sliding_window=64)]  # others: test_families.py


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda config: config.model_type)
def network(request):
    torch.manual_seed(0)
    return Auto.from_config(request.param).eval()


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-4)


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


def test_several_drafts_are_read_at_once(network):
    ids = ids_of(20)
    model = TransformersEngine(network)
    model.prefill(ids)
    for drafts in ([(5,), (7,), (9,)], [(5, 11), (7, 3)], [(5, 11, 4), (7, 3, 1), (5, 11, 6)]):
        for logits, draft in zip(model.read_drafts(drafts), drafts, strict=True):
            close(logits, plain_logits(network, [*ids, *draft]))


def test_what_forks_and_their_origin_read_is_their_own(network):
    """In whatever order they write behind the positions that they share."""
    model = TransformersEngine(network)
    ids = ids_of(20)
    model.prefill(ids)
    origin = model.prompts[-1].cache
    caches = {5: origin.fork(20), 7: origin, 9: origin.fork(20)}
    for token, cache in caches.items():
        model.forward([token], cache, np.ones(1))
    for token, cache in caches.items():
        found = model.forward([token + 1], cache, np.ones(1))
        close(found, plain_logits(network, [*ids, token, token + 1]))


@pytest.mark.parametrize("wrong", [[96], [-1], [2**40]])
def test_an_id_that_the_model_does_not_have_is_refused_and_leaves_every_cache_as_it_was(network, wrong):
    """A GPU that is asked for a row beyond a table gives up for good: it must not come to that."""
    model = TransformersEngine(network)
    model.prefill(ids_of(20))
    with pytest.raises(IndexError, match="expected ids from 0 to 95, found"):
        model.forward_batch([ForwardInput(model.prompts[-1].cache, [5]), ForwardInput(model.new_cache(), wrong)])
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids_of(20), 7]))


@pytest.mark.parametrize(
    ("fault", "told"),
    [(MemoryError(), MemoryError), (torch.OutOfMemoryError(), "no memory left for this request.*--device cpu")],
)
def test_a_batch_that_fails_leaves_every_cache_as_it_was(network, monkeypatch, fault, told):
    """Of two passes the first is over: asked again, its prompt is read once."""
    model = TransformersEngine(network)
    model.prefill(ids_of(20))
    texts, run, fails = [model.prompts[-1].cache, model.new_cache()], model._run, iter([False, True])

    def breaks(cache, **inputs):
        if next(fails):
            raise fault
        return run(cache, **inputs)

    expected = pytest.raises(UserError, match=told) if isinstance(told, str) else pytest.raises(told)
    with monkeypatch.context() as patch, expected:
        patch.setattr(model, "_run", breaks)
        model.forward_batch([ForwardInput(text, [5, 6]) for text in texts])
    assert [text.length for text in texts] == [20, 0]
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids_of(20), 7]))


COMPILED = """
import itertools, sys
import numpy as np
import torch
from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.torch.engine import TransformersEngine
from spd_lsp.settings import Settings
from tests.models.networks import ids_of
from tests.models.torch.test_engine import FAMILIES, Auto

torch.manual_seed(0)
network = Auto.from_config(FAMILIES[int(sys.argv[1])]).eval()
plain, compiled = TransformersEngine(network), TransformersEngine(network)
compiled.compile_steps(dynamic=True)
for length, decode in itertools.product([5, 250, 400], [superpose, best_first]):
    found, expected = (
        decode(engine, DecodingRequest(ids_of(length), lambda ids: False), Settings(max_tokens=12)).best
        for engine in (compiled, plain)
    )
    assert [draft.ids for draft in found] == [draft.ids for draft in expected]
    np.testing.assert_allclose([draft.score for draft in found], [draft.score for draft in expected], atol=2e-4)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++")
@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_a_compiled_model_writes_the_same_drafts_and_is_compiled_once(family, pytestconfig):
    """At lengths whose shapes differ; best first, drafts go on from forks. In a process without other modules."""
    command = [sys.executable, "-c", COMPILED, str(family)]
    done = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_model_that_computes_otherwise_when_it_is_compiled_stays_as_it_is(network, monkeypatch):
    model, said = TransformersEngine(network), []
    monkeypatch.setattr(torch, "compile", lambda step, **options: lambda *given: (step(*given)[0] * 2, []))
    _compile_steps(model, "mine", said.append)
    assert said[1] == "mine is slower than it could be: it cannot be compiled (it predicts something else then)"
    model.prefill(ids_of(20))
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids_of(20), 7]))


def test_a_compiled_step_that_fails_later_is_given_up(network, caplog):
    """And the same step is read without it."""

    def breaks(*given):
        raise RuntimeError("a shape that was not recorded")

    model = TransformersEngine(network)
    model.prefill(ids_of(20))
    model.compiled_step = breaks
    close(model.step([7], np.ones(1)), plain_logits(network, [*ids_of(20), 7]))
    assert model.compiled_step is None
    assert "steps are not compiled any more: RuntimeError" in caplog.text


def test_drafts_are_read_in_any_order(network):
    """Best first, from the cache of each one's parent."""
    model, ids = TransformersEngine(network), ids_of(20)
    model.prefill(ids)
    for draft in [(5,), (7,), (5, 11), (5, 12), (7, 3), (5, 11, 4)]:
        close(model.read_draft(draft), plain_logits(network, [*ids, *draft]))

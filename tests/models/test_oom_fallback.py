"""When memory runs out in the middle of a request, its drafts are those of an engine that never ran out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models import open_checkpoint
from spd_lsp.models.base import OomFallback
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.transformers_engine import TransformersEngine
from spd_lsp.settings import Settings
from tests.models.networks import FAST, VOCABULARY, random_network

SETTINGS = Settings(drafts=3, max_tokens=6)


def out_of_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def runs_out(engine, passes):
    """The same engine, whose memory runs out after so many passes."""
    forward_batch, left = engine.forward_batch, iter([None] * passes)
    engine.forward_batch = lambda inputs: forward_batch(inputs) if next(left, True) is None else out_of_memory()
    return engine


def with_fallback(engine, reopen, reports):
    engine.oom_fallback = OomFallback(torch.OutOfMemoryError, reopen, reports.append)
    return engine


@pytest.fixture(scope="module")
def decoder():
    return convert(random_network(next(iter(FAST.values()))))


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def drafts_of(engine, ids, decode=superpose):
    start = DecodingRequest(ids, stop=lambda found: False, history=ids[-8:])
    drafts = engine.run_request(lambda running: decode(running, start, SETTINGS, lambda: None))
    return [draft.ids for draft in drafts.best]


@pytest.mark.parametrize("decode", [superpose, best_first])
@pytest.mark.parametrize("passes", range(0, 9, 2))
def test_drafts_are_the_same_wherever_memory_runs_out(decoder, passes, decode):
    reports, plain = [], TorchEngine(decoder)
    engine = with_fallback(runs_out(TorchEngine(decoder), passes), lambda: TorchEngine(decoder), reports)
    for ids in (prompt(20), prompt(24), prompt(200, seed=1)):
        assert drafts_of(engine, ids, decode) == drafts_of(plain, ids, decode)
    [report] = reports
    assert "ran out of memory" in report


@pytest.mark.parametrize("where", ["a pass", "a copy of the cache"])
@pytest.mark.parametrize("make", ["torch", "transformers"])
def test_engines_of_a_gpu_hand_over_and_free_their_memory(make, where, monkeypatch):
    """Another kind of engine stands for the CPU's."""
    network, reports = random_network(next(iter(FAST.values()))), []
    decoder = convert(random_network(next(iter(FAST.values()))))
    engine, on_cpu = TransformersEngine(network), TorchEngine(decoder)
    if make == "torch":
        engine, on_cpu = on_cpu, engine
    engine.selects_on_device = make == "torch"
    engine.second_row_is_free = True
    with_fallback(engine, lambda: on_cpu, reports)
    expected = drafts_of(on_cpu, prompt(20))
    drafts_of(engine, prompt(200, seed=1))
    if where == "a pass":
        runs_out(engine, 2)
    else:
        monkeypatch.setattr(type(engine.new_cache()), "fork", out_of_memory)
    assert drafts_of(engine, prompt(20)) == expected
    assert len(reports) == 1
    assert (str(engine.device), engine.second_row_is_free) == ("cpu", False)
    assert not {"decoder", "network", "pool"} & set(vars(engine))


def test_an_engine_whose_memory_suffices_stays(decoder):
    reports = []
    engine = with_fallback(TorchEngine(decoder), out_of_memory, reports)
    drafts_of(engine, prompt(20))
    assert reports == []


def test_without_memory_for_the_fallback_the_error_is_raised(decoder):
    engine = runs_out(TorchEngine(decoder), 3)
    with_fallback(engine, lambda: runs_out(TorchEngine(decoder), 2), [])
    with pytest.raises(torch.OutOfMemoryError):
        drafts_of(engine, prompt(20))


def test_other_errors_are_raised(decoder):
    def cancel():
        raise ValueError("cancelled")

    engine = with_fallback(TorchEngine(decoder), out_of_memory, [])
    with pytest.raises(ValueError, match="cancelled"):
        engine.run_request(lambda running: running.prefill(prompt(20), cancel))
    assert engine.oom_fallback.engine is None


def test_only_the_request_that_ran_out_of_memory_falls_back(decoder):
    reports, plain = [], TorchEngine(decoder)
    engine = runs_out(TorchEngine(decoder), 9)
    scheduler = BatchScheduler(with_fallback(engine, lambda: TorchEngine(decoder), reports))
    first, second = scheduler.new_engine(), scheduler.new_engine()
    for one in (first, second, first, second):
        assert drafts_of(one, prompt(20)) == drafts_of(plain, prompt(20))
    assert [one.oom_fallback.engine is None for one in (first, second)].count(True) <= 1
    assert engine.oom_fallback.engine is None
    assert reports


def test_a_model_on_a_gpu_falls_back_to_the_cpu(decoder, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(open_checkpoint, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(open_checkpoint, "read_config", lambda folder: None)
    monkeypatch.setattr(open_checkpoint, "check_architecture", lambda config, folder: None)

    def open_on(device, folder, config, report):
        opened.append(device.type)
        return runs_out(TorchEngine(decoder), 4 if device.type == "cuda" else 1000)

    monkeypatch.setattr(open_checkpoint, "open_on", open_on)
    reports = []
    engine = open_checkpoint.open_model(tmp_path, "auto", reports.append)
    assert drafts_of(engine, prompt(20)) == drafts_of(TorchEngine(decoder), prompt(20))
    assert opened == ["cuda", "cpu"]
    assert len(reports) == 1
    assert open_checkpoint.open_model(tmp_path, "cuda", reports.append).oom_fallback is None

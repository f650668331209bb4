"""When memory runs out in mid-use the drafts are those of an engine that never ran out, and a person is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from spd_lsp.decoding.rescoring import rescored
from spd_lsp.decoding.superposed import Start, superpose
from spd_lsp.models import open_checkpoint as opening
from spd_lsp.models.batch_scheduler import SharedEngine
from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.engine import NumpyRunner
from spd_lsp.models.oom_fallback import Retreating
from spd_lsp.models.torch.convert import convert as convert_for_torch
from spd_lsp.models.torch.engine import TorchRunner
from spd_lsp.settings import Settings
from tests.models.networks import FAST, VOCABULARY, random_network

SETTINGS = Settings(drafts=3, max_tokens=6)


class RunsOut(NumpyRunner):
    """An engine whose memory ends with a pass of that number."""

    def __init__(self, decoder, last):
        super().__init__(decoder)
        self.left = last

    def spend(self):
        self.left -= 1
        if self.left < 0:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def forward(self, embedded, cache):
        self.spend()
        return super().forward(embedded, cache)

    def read(self, ids, cache, *, last=False):
        self.spend()
        return super().read(ids, cache, last=last)

    def together(self, passes):
        self.spend()
        return super().together(passes)


@pytest.fixture(scope="module")
def decoder():
    return convert(random_network(next(iter(FAST.values()))))


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def drafts_of(engine, ids, decode=superpose):
    start = Start(ids, stop=lambda found: False, history=ids[-8:])
    return [draft.ids for draft in decode(engine, start, SETTINGS, lambda: None).best]


def retreating(decoder, last, said):
    return Retreating(RunsOut(decoder, last), torch.OutOfMemoryError, lambda: NumpyRunner(decoder), said.append)


@pytest.mark.parametrize("decode", [superpose, rescored])
@pytest.mark.parametrize("last", range(0, 9, 2))
def test_drafts_are_the_same_wherever_memory_runs_out(decoder, last, decode):
    said = []
    engine = retreating(decoder, last, said)
    plain = NumpyRunner(decoder)
    for ids in (prompt(20), prompt(24), prompt(200, seed=1)):
        assert drafts_of(engine, ids, decode) == drafts_of(plain, ids, decode)
    assert len(said) == 1
    assert "ran out of memory" in said[0]


@pytest.mark.parametrize("last", [1, 3])
def test_a_device_that_chooses_among_logits_leaves_that_to_the_host(decoder, last):
    class Selecting(TorchRunner):
        selects, left, spend = True, last, RunsOut.spend

        def together(self, passes):
            self.spend()
            return super().together(passes)

    network, said = random_network(next(iter(FAST.values()))), []
    engine = Retreating(
        Selecting(convert_for_torch(network)), torch.OutOfMemoryError, lambda: NumpyRunner(decoder), said.append
    )
    assert engine.selects
    assert drafts_of(engine, prompt(20)) == drafts_of(NumpyRunner(decoder), prompt(20))
    assert not engine.selects
    assert len(said) == 1


def test_an_engine_whose_memory_suffices_stays(decoder):
    said = []
    engine = retreating(decoder, 1000, said)
    drafts_of(engine, prompt(20))
    assert isinstance(engine.engine, RunsOut)
    assert said == []


def test_where_memory_runs_out_as_well_there_is_nothing_else_to_try(decoder):
    engine = Retreating(
        RunsOut(decoder, 3), torch.OutOfMemoryError, lambda: RunsOut(decoder, 2), lambda text: None
    )
    with pytest.raises(torch.OutOfMemoryError):
        drafts_of(engine, prompt(20))


def test_other_faults_are_not_taken_for_it(decoder):
    engine = retreating(decoder, 1000, [])
    with pytest.raises(ValueError, match="cancelled"):
        engine.prefill(prompt(20), check=raise_cancelled)
    assert isinstance(engine.engine, RunsOut)


def raise_cancelled():
    raise ValueError("cancelled")


def test_a_shared_engine_loses_only_the_request_that_ran_out(decoder):
    said = []
    shared = SharedEngine(retreating(decoder, 9, said))
    plain = NumpyRunner(decoder)
    first, second = shared.seat(), shared.seat()
    for seat in (first, second, first, second):
        assert drafts_of(seat, prompt(20)) == drafts_of(plain, prompt(20))
    assert len(said) >= 1
    assert first.reopen is None or second.reopen is None


def test_a_model_on_a_gpu_is_opened_with_a_way_back_to_the_cpu(decoder, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(opening, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(opening, "read_config", lambda folder: None)
    monkeypatch.setattr(opening, "refuse_others", lambda config, folder: None)

    def open_on(device, folder, config, report):
        opened.append(device.type)
        return RunsOut(decoder, 4) if device.type == "cuda" else NumpyRunner(decoder)

    monkeypatch.setattr(opening, "open_on", open_on)
    said = []
    engine = opening.open_model(tmp_path, "auto", said.append)
    assert drafts_of(engine, prompt(20)) == drafts_of(NumpyRunner(decoder), prompt(20))
    assert opened == ["cuda", "cpu"]
    assert len(said) == 1
    assert isinstance(opening.open_model(tmp_path, "cuda", said.append), RunsOut)

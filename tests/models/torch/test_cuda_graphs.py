"""Graphs are captured and copies made by calls that torch has, in the order that CUDA wants; no GPU takes part."""

from __future__ import annotations

import inspect
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from spd_lsp.models.torch.cuda_graphs import WARM_UPS, CudaCapture
from spd_lsp.models.torch.kv_cache import CachedSequence
from spd_lsp.models.torch.padded_batch import PaddedBatch, PassShape, SequenceGroup

SHAPE = PassShape(rows=2, length=1, new=2, mixed=3, wanted=2, first=0, past=512)


@pytest.fixture
def calls(monkeypatch):
    """What is asked of CUDA, in order; a call with arguments that torch does not take fails."""
    calls = []
    signature = inspect.signature(torch.cuda.graph.__init__)

    class Stream:
        def __init__(self, device=None):
            self.name = "side"

        def wait_stream(self, other):
            calls.append(f"{self.name} waits for {other.name}")

    main = Stream()
    main.name = "main"

    class Event:
        def record(self, stream):
            calls.append(f"mark {stream.name}")

        def synchronize(self):
            calls.append("wait for the mark")

    class Graph:
        def replay(self):
            calls.append("replay")

    @contextmanager
    def graph(*given, **named):
        signature.bind(None, *given, **named)
        calls.append("capture")
        yield
        calls.append("captured")

    @contextmanager
    def stream(one):
        calls.append(f"on {one.name}")
        yield
        calls.append("back")

    for name, fake in {
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": graph,
        "stream": stream,
        "graph_pool_handle": lambda: "pool",
        "current_stream": lambda device: main,
    }.items():
        assert hasattr(torch.cuda, name)
        monkeypatch.setattr(torch.cuda, name, fake)
    return calls


def test_work_is_warmed_up_and_captured_on_a_stream_of_its_own_and_then_replayed(calls):
    done = []
    replay = CudaCapture(torch.device("cuda", 0))(lambda: done.append("work") or torch.ones(1))
    warm = ["side waits for main", "on side", "back", "main waits for side"]
    assert calls == [*warm, "capture", "captured"]
    assert len(done) == WARM_UPS + 1
    assert replay() is replay()
    assert calls[-2:] == ["replay", "replay"]
    assert len(done) == WARM_UPS + 1


def test_the_result_of_a_pass_is_awaited_and_owned_by_the_caller(calls, monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, dtype, pin_memory: empty(shape, dtype=dtype))
    batch = PaddedBatch(SHAPE, torch.device("cpu"))
    batch.device = torch.device("cuda", 0)
    logits = torch.arange(6.0).view(2, 3)
    first = batch.fetch(logits)
    assert calls == ["mark main", "wait for the mark"]
    second = batch.fetch(logits + 1)
    np.testing.assert_array_equal(first + 1, second)


def test_inputs_are_filled_in_place():
    batch = PaddedBatch(SHAPE, torch.device("cpu"))
    before = [part.data_ptr() for part in batch.inputs if part is not None]
    for number in (1, 2):
        sequences = [CachedSequence(None) for _ in range(2)]
        for slot, sequence in enumerate(sequences):
            sequence.slot, sequence.length = slot, 3 + slot * number
        groups = [SequenceGroup(each, [([number] * 3, np.full(3, number / 4))], 1, True) for each in sequences]
        assert batch.fill(groups, padding_slot=7, vocabulary=9) == [1, 1]
        assert batch.inputs.ids.tolist() == [[number] * 3] * 2
        assert batch.inputs.weights.tolist() == [[number / 4] * 3] * 2
        assert batch.inputs.positions.tolist() == batch.inputs.starts.tolist() == [3, 3 + number]
        assert batch.inputs.slots.tolist() == batch.inputs.wanted.tolist() == [0, 1]
    batch.fill(groups[:1], padding_slot=7, vocabulary=9)
    assert batch.inputs.slots.tolist() == [0, 7]
    assert [part.data_ptr() for part in batch.inputs if part is not None] == before
    assert batch.inputs.to_padded is batch.inputs.from_padded is batch.inputs.extra_ids is None

"""Graphs are captured and copies made by calls that torch has, in the order that CUDA wants; no GPU takes part."""

from __future__ import annotations

import inspect
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from spd_lsp.models.torch.cuda_graphs import WARM_UPS, CudaCapture, Frame, Shape

SHAPE = Shape(rows=2, each=1, new=2, mixed=3, wanted=2, first=0, length=512)


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


def test_what_a_pass_found_is_waited_for_and_is_the_callers_own(calls, monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, dtype, pin_memory: empty(shape, dtype=dtype))
    frame = Frame(SHAPE, torch.device("cpu"))
    frame.device = torch.device("cuda", 0)
    logits = torch.arange(6.0).view(2, 3)
    first = frame.fetch(logits)
    assert calls == ["mark main", "wait for the mark"]
    second = frame.fetch(logits + 1)
    np.testing.assert_array_equal(first + 1, second)


def test_what_is_filled_in_is_what_a_pass_reads_without_moving():
    frame = Frame(SHAPE, torch.device("cpu"))
    before = [part.data_ptr() for part in frame.inputs if part is not None]
    for number in (1, 2):
        frame.fill(
            np.full((2, 3), number / 4, np.float32),
            [],
            ids=np.full((2, 3), number),
            positions=np.array([number, 7]),
            rows=np.array([0, number]),
            starts=np.array([3, number]),
            wanted=np.array([0, 1]),
        )
        assert frame.inputs.ids.tolist() == [[number] * 3] * 2
        assert frame.inputs.weights.tolist() == [[number / 4] * 3] * 2
        assert frame.inputs.positions.tolist() == [number, 7]
        assert frame.inputs.rows.tolist() == [0, number]
        assert frame.inputs.starts.tolist() == [3, number]
    assert [part.data_ptr() for part in frame.inputs if part is not None] == before
    assert frame.inputs.spread is frame.inputs.gathered is frame.inputs.asked is None

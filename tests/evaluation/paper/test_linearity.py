"""The linearity experiment: what must hold for any model, on the shipped one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper.linearity import Beams, Trace, summarise, trace_passage, trace_passages
from tests.conftest import STARTER

CODE = "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return "
OTHER = "class Shape:\n    def __init__(self, width, height):\n        self."


@pytest.fixture(scope="module")
def network(starter_network):
    torch.set_num_threads(1)
    return starter_network


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokens = ModelTokenizer(STARTER)
    return [tokens.encode(CODE), tokens.encode(OTHER)]


@pytest.fixture(scope="module")
def traces(network, prompts) -> list[Trace]:
    return list(trace_passages(network, prompts, 3, 6, 1.0))


def naive_beams(network, prompt: Sequence[int], k: int, steps: int) -> list[list[int]]:
    """Beam search that reads every text from its start."""
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(steps):
        options = []
        for score, ids in beams:
            with torch.inference_mode():
                logp = network(torch.tensor([[*prompt, *ids]])).logits[0, -1].float().log_softmax(-1)
            options += [(score + float(value), [*ids, int(i)]) for value, i in zip(*logp.topk(k), strict=True)]
        beams = sorted(options, key=lambda option: -option[0])[:k]
    return [ids for _, ids in beams]


def test_beams_with_a_cache_are_those_without(network, prompts) -> None:
    with torch.inference_mode():
        beams, _ = Beams.start(network, prompts[0], 3, 1.0)
        for _ in range(3):
            beams.extend(beams.read()[-1])
    expected = naive_beams(network, prompts[0], 3, 4)
    assert beams.ids.tolist() == [ids[-1] for ids in expected]


def test_embeddings_are_superposed_exactly(traces: list[Trace]) -> None:
    assert np.allclose(traces[0].cosines[:, 0], 1, atol=1e-5)
    assert (traces[0].to_mixture > -1e-4).all()


def test_one_draft_with_all_the_weight_is_read_as_it_is(network, prompts) -> None:
    """With a very sharp distribution superposing does nothing while the best draft stays the best."""
    found = trace_passage(network, prompts[0], 3, 1, 0.001)
    assert found.cosines[0] == pytest.approx(np.ones(network.config.num_hidden_layers + 2), abs=1e-4)
    assert found.to_mixture[0] == pytest.approx(0, abs=1e-2)


def test_the_report_names_every_measure(traces: list[Trace]) -> None:
    text = summarise({1.0: traces}, [("a", "x.py"), ("b", "y.py")], {"model": "starter"}).markdown()
    assert all(name in text for name in ("cosine, last block", "cosine, logits", "KL, nats", "timesteps 1-6"))

"""What times a GPU runs from end to end at a tiny size on a CPU, with steps captured or not."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner

from spd_lsp.evaluation.gpu.command import gpu
from spd_lsp.evaluation.gpu.measure import ARMS, SERVED, Asked, Found, bandwidth, longest, measure
from spd_lsp.evaluation.gpu.report import report_of
from spd_lsp.evaluation.gpu.subject import SHAPES, compile_steps, prepare
from spd_lsp.models.torch.engine import TorchEngine
from tests.models.torch.test_engine import Traced

TINY = Asked("tiny", "cpu", context=48, tokens=3, repeat=2, rows=(1, 4), editors=(1, 3), requests=2)


@pytest.fixture(scope="module")
def found():
    subject = prepare(TINY.shape, TINY.device, longest(TINY), compiled=False)
    assert subject.remarks == []
    subject.engine.capture = Traced()
    found = Found(dataclasses.asdict(TINY), {"device": "cpu"}, "TorchEngine", [], subject.weights)
    measure(subject, TINY, found, lambda text: None)
    return found


@pytest.mark.slow
def test_everything_is_measured_as_often_as_asked(found):
    assert len(found.prefill) == len(found.reference_step) == TINY.repeat
    assert found.prefill_tokens == TINY.context
    assert [(one.rows, len(one.whole), len(one.few), len(one.device)) for one in found.steps] == [
        (1, 2, 2, 2),
        (4, 2, 2, 2),
    ]
    assert found.drafts.keys() == set(ARMS)
    assert {len(taken) for taken in found.drafts.values()} == {TINY.repeat}
    assert [(one.editors, one.decoder) for one in found.served] == [(n, name) for n in (1, 3) for name in SERVED]
    assert {len(one.taken) for one in found.served if one.editors == 3} == {3 * TINY.requests}


def test_a_step_must_read_its_weights_and_the_keys_and_values_of_all_prompts(found):
    projections, biases, norms = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 128, 64 + 2 * 32, 2 * 64
    weights = 4 * (512 * 64 + 2 * (projections + biases + norms) + 64)
    position = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, width, bytes
    assert found.weights == weights
    assert [one.bytes for one in found.steps] == [
        weights + 48 * position,
        weights + (48 + 45 + 42 + 39) * position,
    ]


def test_editors_are_served_together(found):
    alone, several = (next(one for one in found.served if one.editors == editors) for editors in (1, 3))
    assert alone.together == 1
    assert 1 < several.together <= 3


def test_the_report_names_every_contender_and_says_what_was_aimed_at(found):
    text = report_of(found).markdown()
    for part in ("limit / device", "superposed decoding", "| 3 | nucleus, batched |", "| goal | found |"):
        assert part in text
    assert json.loads(report_of(found).json())["data"]["steps"][1]["rows"] == 4


def test_the_command_writes_what_it_found(tmp_path):
    flags = "--shape tiny --device cpu --context 16 --tokens 2 --repeat 2 --rows 1 --editors 1 --requests 1"
    out = tmp_path / "found.json"
    result = CliRunner().invoke(gpu, [*flags.split(), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text())["data"]["engine"].startswith("TorchEngine, ")
    assert "not captured" in result.output


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--shape", "70b"], "expected a shape among 0.5b, 1.5b, 7b, tiny, starter, found '70b'; choose one"),
        (["--rows", "0,x"], "expected numbers from 1 to 128 such as 1,8,32, found '0,x'"),
        (["--out", "a.csv"], "cannot write a.csv: the name must end in .md, .json or .png"),
    ],
)
def test_wrong_flags_are_one_sentence(flags, sentence):
    result = CliRunner().invoke(gpu, ["--device", "cpu", *flags])
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == f"Error: {sentence}"


def test_the_named_shapes_have_the_sizes_they_are_named_after():
    def parameters(config):
        width, head = config.hidden_size, config.hidden_size // config.num_attention_heads
        block = 2 * width * (width + head * config.num_key_value_heads) + 3 * width * config.intermediate_size
        tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size * width
        return (config.num_hidden_layers * block + tables) / 1e9

    sizes = {name: round(parameters(SHAPES[name]), 2) for name in ("0.5b", "1.5b", "7b")}
    assert sizes == {"0.5b": 0.49, "1.5b": 1.54, "7b": 7.62}


def test_bandwidth_is_bytes_by_seconds(monkeypatch):
    monkeypatch.setattr("spd_lsp.evaluation.gpu.measure.timed", lambda work, repeat, device: [0.75, 0.5])
    found = bandwidth(torch.device("cpu"), 1 << 16, 2)
    assert found == {"sum": 2**17, "matrix by vector": 2**17, "copy, both ways": 2**18}


def test_compiled_steps_take_the_place_of_plain_ones(monkeypatch):
    subject = prepare("tiny", "cpu", 40, compiled=False)
    monkeypatch.setattr("torch.compile", lambda work, **how: how)
    compile_steps(subject.engine)
    assert subject.engine.read_recurring["fullgraph"]


def test_an_engine_that_would_not_be_chosen_is_measured_and_said_so(monkeypatch):
    reason = "one pass differs by 2.0%"
    monkeypatch.setattr("spd_lsp.models.torch.select.find_gpu_mismatch", lambda engine, reference: reason)
    subject = prepare("tiny", "cpu", 40, compiled=False)
    assert isinstance(subject.engine, TorchEngine)
    assert subject.remarks == ["runs in transformers: one pass differs by 2.0%"]

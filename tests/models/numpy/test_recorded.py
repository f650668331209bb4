"""A recorded model opens without torch and equals transformers; an invalid recording is ignored."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ngram_builders.errors import UserError
from spd_lsp.models.load import load
from spd_lsp.models.numpy.decoder import NumpyEngine
from spd_lsp.models.numpy.kv_cache import INITIAL_TAIL
from spd_lsp.models.numpy.recorded import DRAFT_ADAPTER, RECORD, open_recorded
from spd_lsp.models.open_checkpoint import open_model
from spd_lsp.models.recording import record
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.conftest import STARTER
from tests.models.networks import FAST, random_adapter, random_network


@pytest.fixture(params=["llama, tied", "llama, biases", "qwen3", "llama, yarn positions", "starcoder2, window"])
def network(request):
    return random_network(FAST[request.param])


@pytest.fixture
def folder(network, tmp_path):
    network.save_pretrained(tmp_path)
    record(tmp_path)
    return tmp_path


def silent(text):
    raise AssertionError(text)


def test_a_recorded_model_answers_as_transformers_does(network, folder):
    ids = list(range(40))
    expected = TransformersEngine(network).prefill(ids)
    np.testing.assert_allclose(open_recorded(folder, print).prefill(ids), expected, rtol=1e-4, atol=1e-3)


def test_half_precision_on_disk_is_read_as_single(network, tmp_path):
    network.half().save_pretrained(tmp_path)
    record(tmp_path)
    engine = open_recorded(tmp_path, print)
    np.testing.assert_allclose(
        engine.prefill([4, 5, 6]), TransformersEngine(network.float()).prefill([4, 5, 6]), rtol=1e-4, atol=1e-3
    )


def test_without_a_record_nothing_is_reported(network, tmp_path):
    network.save_pretrained(tmp_path)
    assert open_recorded(tmp_path, silent) is None


def change_weights(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.self_attn.o_proj.weight"][0] *= 1.1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def change_record(folder, **changes):
    path = folder / RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


WRONG = {
    "other weights": change_weights,
    "a weight missing": lambda folder: save_file({}, folder / "model.safetensors"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "weights cut off": lambda folder: (folder / "model.safetensors").write_bytes(b"\x08"),
    "not JSON": lambda folder: (folder / RECORD).write_text("{"),
    "an empty record": lambda folder: (folder / RECORD).write_text("{}"),
    "no object": lambda folder: (folder / RECORD).write_text("[]"),
    "fewer layers": lambda folder: change_record(folder, layers=1),
    "another shape": lambda folder: change_record(folder, shape={"heads": 3}),
    "ids beyond the vocabulary": lambda folder: change_record(folder, probe=[10**6] * 16),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_record_that_does_not_match_is_reported_in_one_line_and_not_used(tmp_path, wrong):
    random_network(FAST["qwen2"]).save_pretrained(tmp_path)
    record(tmp_path)
    WRONG[wrong](tmp_path)
    reports = []
    assert open_recorded(tmp_path, reports.append) is None
    assert "does not match the weights" in reports[-1]
    assert "\n" not in reports[-1]


@pytest.fixture
def with_adapter(tmp_path):
    """A recorded model and its draft adapter."""
    network = random_network(FAST["qwen2"])
    network.save_pretrained(tmp_path)
    record(tmp_path)
    adapter = {name: torch.from_numpy(weights) for name, weights in random_adapter(WIDTH).items()}
    save_file(adapter, tmp_path / DRAFT_ADAPTER)
    return tmp_path


WIDTH = FAST["qwen2"].hidden_size
BAD_ADAPTERS = {
    "of another width": lambda path: save_file(
        {k: torch.from_numpy(w) for k, w in random_adapter(8).items()}, path
    ),
    "not a number": lambda path: save_file(
        {**load_file(path), "of_log_gamma": torch.full((20,), torch.nan)}, path
    ),
    "too large a number": lambda path: save_file(
        {**load_file(path), "of_log_gamma": torch.full((20,), 1e300, dtype=torch.float64)}, path
    ),
    "in bfloat16": lambda path: save_file({k: w.bfloat16() for k, w in load_file(path).items()}, path),
    "of no inner width": lambda path: save_file(
        {"gate_up": torch.ones(0, 3 * WIDTH), "of_log_gamma": torch.ones(0), "down": torch.ones(WIDTH, 0)}, path
    ),
    "a weight missing": lambda path: save_file({"down": torch.ones(WIDTH, 10)}, path),
    "no weights": lambda path: save_file({}, path),
    "one number": lambda path: save_file({"down": torch.tensor(1.0)}, path),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "no safetensors": lambda path: path.write_bytes(b"\x08"),
}


def test_a_draft_adapter_beside_the_weights_is_used_and_prompts_are_read_as_without(with_adapter):
    engine = open_recorded(with_adapter, lambda text: None)
    assert engine.tells_drafts_apart
    (with_adapter / DRAFT_ADAPTER).unlink()
    without = open_recorded(with_adapter, lambda text: None)
    assert not without.tells_drafts_apart
    np.testing.assert_array_equal(engine.prefill([4, 5, 6]), without.prefill([4, 5, 6]))
    ids, gamma = [7, 8], np.array([0.75, 0.25])
    shared, apart = without.step(ids, gamma), engine.step_drafts(ids, [6, 6], gamma, [0, 0])
    assert apart.shape == (2, len(shared))
    assert all(np.abs(logits - shared).max() > 0.1 for logits in apart)


def test_a_draft_that_stays_alone_is_read_like_text_from_there_on(with_adapter):
    engine = open_recorded(with_adapter, lambda text: None)
    tokens = [4, 5, 6, *range(7, 7 + INITIAL_TAIL + 1)]
    engine.prefill(tokens[:3])
    for before, last in pairwise(tokens[2:]):
        found = engine.step_drafts([last], [before], np.ones(1), [0])
    np.testing.assert_allclose(found[0], engine.prefill(tokens), rtol=1e-4, atol=1e-4)


def test_a_draft_continues_its_parent(with_adapter):
    """Two drafts go on from one, the other one ends; those that go on are read after the tokens of that one."""
    engine, gamma = open_recorded(with_adapter, lambda text: None), np.array([0.75, 0.25])
    found = []
    for parents in ([0, 0], [1, 1], [0, 1]):
        engine.prefill([4, 5, 6])
        engine.step_drafts([7, 8], [6, 6], gamma, [0, 0])
        found.append(engine.step_drafts([10, 11], [8, 8], gamma, parents))
    np.testing.assert_array_equal(found[2], np.stack([found[0][0], found[1][1]]))
    assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.parametrize("bad", BAD_ADAPTERS)
def test_a_draft_adapter_that_does_not_fit_is_reported_in_one_line_and_not_used(bad, with_adapter):
    BAD_ADAPTERS[bad](with_adapter / DRAFT_ADAPTER)
    reports = []
    engine = open_recorded(with_adapter, reports.append)
    assert not engine.tells_drafts_apart
    assert f"{with_adapter / DRAFT_ADAPTER} cannot be used" in reports[-1]
    assert "\n" not in reports[-1]


def test_changed_weights_are_read_by_torch_instead(folder):
    change_weights(folder)
    engine = load(folder, "cpu")
    expected = open_model(folder, "cpu", lambda text: None).prefill([4, 5])
    np.testing.assert_array_equal(engine.prefill([4, 5]), expected)


def test_what_the_decoder_does_not_compute_cannot_be_recorded(tmp_path):
    network = random_network(FAST["llama"])
    network.config.hidden_act = "gelu"
    network.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="this model can only be opened with torch: in NumPy, one pass differs"):
        record(tmp_path)
    assert not (tmp_path / RECORD).exists()


def test_the_starter_answers_as_in_transformers_by_its_record_and_without():
    recorded = open_recorded(STARTER, lambda text: None)
    assert recorded, "record the starter again: python -m spd_lsp.models.recording spd_lsp/starter"
    opened = open_model(STARTER, "cpu", lambda text: None)
    assert isinstance(opened, NumpyEngine)
    ids = list(range(100, 180))  # torch's powers, for the frequencies of positions, differ by processor in one bit
    np.testing.assert_allclose(recorded.prefill(ids), opened.prefill(ids), rtol=1e-4, atol=1e-4)


def test_the_starter_is_opened_without_torch():
    code = (
        "import sys; from spd_lsp.models.load import load; from spd_lsp.models.checkpoint.hub import locate;"
        "load(locate('starter')).prefill([5, 6]); print({'torch', 'transformers'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_a_copy_of_the_starter_without_its_record_opens_too(tmp_path):
    shutil.copytree(STARTER, tmp_path / "model", ignore=shutil.ignore_patterns(RECORD, "*.ngt"))
    assert isinstance(load(tmp_path / "model", "cpu"), NumpyEngine)
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("damage", ["missing", "bias missing", "shape", "not a number"])
def test_a_record_beside_damaged_weights_does_not_count_and_torch_refuses_them_too(damage, tmp_path):
    random_network(FAST["llama, biases"]).save_pretrained(tmp_path)
    record(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    name = "model.layers.1.self_attn.o_proj." + ("bias" if damage == "bias missing" else "weight")
    if "missing" in damage:
        del weights[name]
    elif damage == "shape":
        weights[name] = weights[name][:-1].contiguous()
    else:
        name = "model.embed_tokens.weight"
        weights[name][50, 3] = torch.nan  # of a token that the record does not read
    save_file(weights, path, {"format": "pt"})
    reports = []
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        load(tmp_path, "cpu", reports.append)
    assert "does not match the weights" in reports[1]

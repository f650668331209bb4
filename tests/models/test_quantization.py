"""Large models on a CPU run in 8 bits, converted once: the next time they are opened from the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from transformers import GraniteConfig, LlamaConfig, Qwen2Config

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.commands import diagnosis
from spd_lsp.models import load as loading
from spd_lsp.models import quantization
from spd_lsp.models.checkpoint import weight_cache
from spd_lsp.models.checkpoint.weight_cache import cache_path, cached_files, prune
from spd_lsp.models.load import load
from spd_lsp.models.numpy import stored
from spd_lsp.models.numpy.decoder import NumpyEngine
from spd_lsp.models.numpy.model_kernel import load_kernel
from spd_lsp.models.numpy.parallel import ParallelInt8
from spd_lsp.models.self_test import MAX_DIVERGENCE, kl_divergence
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.models.networks import FAST, SMALL, random_network

IDS = list(range(20))

pytestmark = pytest.mark.skipif(load_kernel() is None, reason="without the kernel, large models run in torch")


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch, tmp_path):
    monkeypatch.setattr(quantization, "SMALL_MODEL", 0)
    monkeypatch.setattr(weight_cache, "cache_folder", lambda: tmp_path / "cache" / "weights")
    monkeypatch.setattr(loading, "may_have_gpu", lambda: False)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    random_network(FAST["qwen2"]).to(torch.bfloat16).save_pretrained(path)
    return path


def logits(engine):
    return engine.forward_ids([IDS], engine.new_cache())[0]


def no_conversion(*arguments):
    raise AssertionError("converted again")


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "llama, tied", "llama, biases", "starcoder2, window"])
def test_predictions_stay_the_same(kind, precision, tmp_path):
    network = random_network(FAST[kind]).to(precision)
    network.save_pretrained(tmp_path)
    reports = []
    engine = load(tmp_path, "cpu", reports.append)
    assert isinstance(engine.decoder.head, ParallelInt8), reports
    reference = TransformersEngine(network.float())
    assert 0 < kl_divergence(logits(engine), logits(reference)) < MAX_DIVERGENCE
    mixture = [([3, 7, 9], np.array([0.5, 0.3, 0.2]))]
    mixed = [each.forward(mixture, each.new_cache()) for each in (engine, reference)]
    assert kl_divergence(*mixed) < MAX_DIVERGENCE


def test_the_second_time_gives_the_same_bits_without_a_conversion(folder, monkeypatch):
    first = logits(load(folder, "cpu"))
    monkeypatch.setattr(quantization, "_convert", no_conversion)
    for device in ("cpu", "auto"):
        np.testing.assert_array_equal(logits(load(folder, device)), first)


def test_the_second_time_torch_is_not_imported(folder):
    load(folder, "cpu")
    code = (
        "import sys; from pathlib import Path; from spd_lsp.models.load import load;"
        "load(Path(sys.argv[1]), 'cpu').prefill([5, 6]); print({'torch', 'transformers'} & set(sys.modules))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache_path(folder).parents[1])}
    (cache_path(folder).parents[1] / "spd-lsp").symlink_to(cache_path(folder).parents[1])
    command = [sys.executable, "-c", code, str(folder)]
    if sys.platform == "linux":
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "set()"


def test_the_second_time_some_layers_are_compared_with_transformers(folder, monkeypatch):
    """So a change of the engine is noticed: here its last norm has another sign, until the model is converted."""
    load(folder, "cpu")
    converted, make, convert = [], stored.read_decoder, quantization._convert

    def changed(tensors, *arguments):
        return make(tensors, *arguments) if converted else replace(make(tensors, *arguments), norm=lambda x: -x)

    monkeypatch.setattr(stored, "read_decoder", changed)
    monkeypatch.setattr(quantization, "_convert", lambda *each: converted.append(1) or convert(*each))
    load(folder, "cpu")
    assert converted


def test_what_is_done_is_told_with_shares(folder):
    reports = []
    load(folder, "cpu", reports.append)
    assert reports[0] == "loading model: 0%"
    assert reports[1].startswith("converting model to 8 bits, once: ")
    load(folder, "cpu", reports.append)
    assert reports[-1] == "loading model on cpu: 100%"


DAMAGES = {
    "cut off": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a bit": lambda data: bytes([*data[:5000], data[5000] ^ 1, *data[5001:]]),
    "zeros": lambda data: data[:4096] + bytes(4096) + data[8192:],
    "longer": lambda data: data + b"\0",
    "another version": lambda data: data.replace(b"spd-lsp weights 3", b"spd-lsp weights 2"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_again_in_silence(folder, damage):
    first = logits(load(folder, "cpu"))
    path = cache_path(folder)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    reports = []
    np.testing.assert_array_equal(logits(load(folder, "cpu", reports.append)), first)
    assert all(line.startswith(("loading model", "converting model")) for line in reports)
    assert path.read_bytes() == whole


def test_other_weights_of_the_same_size_and_time_are_converted_again(folder):
    before = logits(load(folder, "cpu"))
    path = folder / "model.safetensors"
    times = path.stat()
    weights = load_file(path)
    weights["model.norm.weight"] *= 2
    save_file(weights, path, {"format": "pt"})
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    assert np.abs(logits(load(folder, "cpu")) - before).max() > 0.1


def test_another_configuration_has_another_name_in_the_cache(folder):
    before = cache_path(folder)
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert cache_path(folder) != before


def test_files_that_were_only_touched_or_copied_are_not_converted_again(folder, monkeypatch, tmp_path):
    first = logits(load(folder, "cpu"))
    monkeypatch.setattr(quantization, "_convert", no_conversion)
    os.utime(folder / "model.safetensors", ns=(1, 1))
    np.testing.assert_array_equal(logits(load(folder, "cpu")), first)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    np.testing.assert_array_equal(logits(load(tmp_path / "copy", "cpu")), first)


def test_a_change_that_the_samples_do_not_show_is_found_by_the_files_time(folder, monkeypatch):
    monkeypatch.setattr(weight_cache, "_SAMPLES", 0)
    monkeypatch.setattr(weight_cache, "_BLOCK", 100)
    before, path = logits(load(folder, "cpu")), cache_path(folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert np.abs(logits(load(folder, "cpu")) - before).max() > 0.1
    assert cache_path(folder) == path


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, nothing is given back")
def test_the_pages_of_the_models_file_are_given_back_while_it_is_converted(monkeypatch, tmp_path):
    """Sampled where the record is written: then all were read."""
    folder = tmp_path / "model"
    random_network(Qwen2Config(**{**SMALL, "vocab_size": 150_000})).to(torch.bfloat16).save_pretrained(folder)
    resident, write = [], weight_cache.TensorWriter.finish

    def finish(writer, record):
        maps = Path("/proc/self/smaps").read_text().split("model.safetensors\n")[1:]
        resident.append(sum(int(one.partition("Rss:")[2].split()[0]) << 10 for one in maps))
        write(writer, record)

    monkeypatch.setattr(weight_cache.TensorWriter, "finish", finish)
    load(folder, "cpu")
    size = (folder / "model.safetensors").stat().st_size
    assert resident[0] < size // 2


@pytest.mark.slow
def test_two_processes_may_open_it_at_once(folder, tmp_path):
    """Both convert it: the second waits for the first, and then finds it converted."""
    code = (
        "import sys; from pathlib import Path; from spd_lsp.models import load, quantization\n"
        "from spd_lsp.models.checkpoint import weight_cache\n"
        "weight_cache.cache_folder = lambda: Path(sys.argv[2]); quantization.SMALL_MODEL = 0\n"
        "def report(text):\n    print(text.partition(':')[0])\n"
        "print(load.load(Path(sys.argv[1]), 'cpu', report).prefill([5, 6]).tolist())"
    )
    command = [sys.executable, "-c", code, str(folder), str(weight_cache.cache_folder())]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [process.communicate()[0].splitlines() for process in started]
    assert found[0][-1] == found[1][-1]
    assert sum("converting model to 8 bits, once" in lines for lines in found) == 1
    assert [path.suffix for path in cached_files()] == [".weights"]


@pytest.mark.parametrize("where", ["before", "while writing", "no folder"])
def test_a_full_disk_costs_the_cache_and_nothing_else(folder, monkeypatch, where, tmp_path):
    expected = logits(load(folder, "cpu"))
    cache_path(folder).unlink()
    if where == "before":
        monkeypatch.setattr(weight_cache, "_SPARE_BYTES", 1 << 60)
    elif where == "no folder":
        (tmp_path / "file").touch()
        monkeypatch.setattr(weight_cache, "cache_folder", lambda: tmp_path / "file" / "weights")
    else:
        add, calls = weight_cache.TensorWriter._add, []

        def full(self, data):
            calls.append(len(data))
            if len(calls) == 9:
                raise weight_cache.CannotCache("No space left on device")
            add(self, data)

        monkeypatch.setattr(weight_cache.TensorWriter, "_add", full)
    reports = []
    np.testing.assert_array_equal(logits(load(folder, "cpu", reports.append)), expected)
    assert sum("cannot be kept for the next time: " in line for line in reports) == 1
    assert cached_files() == []


def test_what_a_killed_process_left_is_deleted(folder):
    weight_cache.cache_folder().mkdir(parents=True)
    left = weight_cache.scratch_path(cache_path(folder))
    number = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    left = left.with_name(left.name.replace(f"-{os.getpid()}-", f"-{number.stdout.strip()}-"))
    left.touch()
    load(folder, "cpu")
    assert not left.exists()


def test_the_files_used_last_are_kept(tmp_path, monkeypatch):
    weight_cache.cache_folder().mkdir(parents=True)
    for number in range(4):
        path = weight_cache.cache_folder() / f"{number}.weights"
        path.write_bytes(bytes(10))
        os.utime(path, (number, number))
    assert prune(20) == 20
    assert sorted(path.stem for path in cached_files()) == ["2", "3"]
    assert prune(0) == 20


def test_doctor_names_their_size_and_a_command_deletes_them(folder):
    assert list(diagnosis._converted_weights()) == []
    load(folder, "cpu")
    [finding] = diagnosis._converted_weights()
    assert re.search(r"[MkB]+ of 1 model in .*weights; to delete them, run: spd-lsp models --prune", finding.text)
    assert CliRunner().invoke(main, ["models", "--prune"]).output.startswith("freed ")
    assert cached_files() == []
    assert CliRunner().invoke(main, ["models", "--prune"]).output == "nothing to prune\n"


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["model.embed_tokens", "model.layers.1.mlp.up_proj"])
def test_what_is_no_number_is_refused(name, number, tmp_path):
    network = random_network(FAST["qwen2"])
    with torch.no_grad():
        network.get_parameter(f"{name}.weight")[47, 3] = number  # of a token that the probe does not read
    network.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"cannot be used: (there is NaN in|its predictions are not numbers)"):
        load(tmp_path, "cpu")
    assert cached_files() == []


def test_where_8_bits_change_predictions_32_are_used_and_nothing_is_converted_again(tmp_path, monkeypatch):
    network = random_network(FAST["qwen2"])
    with torch.no_grad():
        network.lm_head.weight[:, 0] = 1e4  # leaves no steps for the other weights of an output
        network.model.norm.weight[0] = 0
    network.save_pretrained(tmp_path)
    reports = []
    engine = load(tmp_path, "cpu", reports.append)
    assert isinstance(engine, NumpyEngine)
    assert not isinstance(engine.decoder.head, ParallelInt8)
    assert "runs in 32 bits: in 8 bits, predictions differ by " in " ".join(reports)
    assert cached_files() == []

    monkeypatch.setattr(quantization, "_convert", no_conversion)
    again = []
    assert not isinstance(load(tmp_path, "cpu", again.append).decoder.head, ParallelInt8)
    reasons = [[line for line in said if "runs in 32 bits" in line] for said in (reports, again)]
    assert reasons[0] == reasons[1] != []


@pytest.mark.parametrize(
    "config", [GraniteConfig(**SMALL, residual_multiplier=0.5), LlamaConfig(**SMALL, hidden_act="gelu")]
)
def test_what_the_engine_does_not_compute_runs_in_transformers(config, tmp_path):
    random_network(config).save_pretrained(tmp_path)
    assert isinstance(load(tmp_path, "cpu"), TransformersEngine)


def test_what_does_not_fit_is_refused_with_numbers_before_it_is_loaded(folder, monkeypatch):
    monkeypatch.setattr(quantization, "free_memory", lambda: 1000)
    monkeypatch.setattr(quantization, "_convert", no_conversion)
    with pytest.raises(UserError, match=r"model takes 0\.0 GiB, but there is 0\.0 GiB of free memory; choose"):
        load(folder, "cpu")


def test_what_does_not_fit_is_refused_before_torch_is_imported(folder, monkeypatch):
    monkeypatch.setattr(loading, "free_memory", lambda: 1000)
    monkeypatch.setattr(loading, "import_module", lambda name: pytest.fail(f"imported {name}"))
    with pytest.raises(UserError, match=r"model takes 0\.0 GiB, but there is 0\.0 GiB of free memory; choose"):
        load(folder, "cpu")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows lets nobody cut a mapped file short")
def test_a_file_cut_short_while_it_is_used_does_not_end_the_process(folder):
    load(folder, "cpu")
    code = (
        "import os, sys; from pathlib import Path\n"
        "from spd_lsp.models.checkpoint.weight_cache import open_cached\n"
        "tensors = open_cached(Path(sys.argv[1]), print); os.truncate(sys.argv[1], 100)\n"
        "tensors.array(tensors.record['embedding']).sum(); print('alive')"
    )
    command = [sys.executable, "-c", code, str(cache_path(folder))]
    assert "alive" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_models_folder_is_not_written_to(folder):
    before = {path: path.stat().st_mtime_ns for path in Path(folder).iterdir()}
    load(folder, "cpu")
    assert {path: path.stat().st_mtime_ns for path in Path(folder).iterdir()} == before

"""The command `models`: what is here and what suits this machine; fetching, from a server on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from spd_lsp.cli import main
from spd_lsp.models.fitting import read_table, recommend
from spd_lsp.models.stored import models_folder
from tests.conftest import STARTER_FILE
from tests.models.hub_server import Hub, running_hub
from tests.models.test_stored import alone, store, write

GIB = 1 << 30
NAME = "hf:me/coder-GGUF:q8_0"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub(monkeypatch) as hub:
        hub.add("me/coder-GGUF/coder-q8_0.gguf", STARTER_FILE.read_bytes())
        yield hub


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["models", *arguments])


def listed() -> dict[str, dict[str, Any]]:
    return {model["name"]: model for model in json.loads(run("--json").stdout)}


def test_what_is_here_is_listed_by_the_name_that_model_takes(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("spd_lsp.commands.models.free_memory", lambda: 5000)
    store(home / ".ollama/models", "registry.ollama.ai/library/qwen2.5-coder/1.5b")
    studio = write(home / ".lmstudio/models/me/coder/coder-Q8_0.gguf", b"GGUF")
    write(home / ".lmstudio/models/me/coder/mmproj-coder.gguf")
    write(home / ".lmstudio/models/me/coder/large-00001-of-00002.gguf")
    write(home / "hf/hub/models--me--coder-GGUF/snapshots/abc/coder-q4_k_m.gguf")
    write(models_folder() / "me/own-GGUF/own-q8_0.gguf")
    weights = home / "hf/hub/models--me--coder/snapshots/abc"
    write(weights / "config.json", b"{}")
    save_file({"a": np.zeros((40, 50), np.float16)}, weights / "model.safetensors")
    found = listed()
    assert {name: (model["format"], model["fits"]) for name, model in found.items()} == {
        "hf:me/own-GGUF:q8_0": ("GGUF qwen2 F16", True),
        "ollama:qwen2.5-coder:1.5b": ("GGUF qwen2 F16", True),
        str(studio): ("GGUF, damaged", True),
        "hf:me/coder-GGUF:q4_k_m": ("GGUF qwen2 F16", True),
        "me/coder": ("safetensors", False),  # in single precision
    }
    lines = run().stdout.splitlines()
    assert lines[0].split() == ["model", "format", "size", "memory", "fits"]
    assert [line.split()[0] for line in lines[1:6]] == list(found)


def test_where_nothing_is_found_the_folders_are_named(home: Path):
    assert f"{home}/.ollama/models" in run().stdout


def test_the_best_models_that_fit_and_are_fast_enough_are_recommended():
    def names(memory: int | None, gpu: int | None) -> list[str]:
        return [row.name for row in recommend(memory, gpu)]

    assert names(64 * GIB, None) == ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "granite-4.0-350m"]
    assert names(GIB, None) == ["qwen2.5-coder-0.5b", "granite-4.0-350m"], "models of code come first"
    assert names(GIB // 4, None) == []
    assert names(64 * GIB, 24 * GIB)[0] == "qwen2.5-coder-7b-gpu"


def test_a_model_is_fetched_tried_and_from_then_on_listed(hub: Hub):
    got = run("get", "me/coder-GGUF:coder-q8_0.gguf")
    assert got.exit_code == 0, got.output
    assert got.stdout.startswith(f"{NAME} is here. To use it, ")
    assert f'"spd-lsp.model": "{NAME}"' in got.stdout
    assert NAME in listed()
    again = run("get", "--json", NAME)
    *before, last = map(json.loads, again.stdout.splitlines())
    assert last == {"model": NAME}
    assert {"status": f"trying {NAME}"} in before
    assert len(hub.ranges) == 1


def test_a_file_that_is_no_model_is_refused_after_its_download(hub: Hub):
    hub.add("me/coder-GGUF/broken-q8_0.gguf", b"GGUF" + bytes(1000))
    got = run("get", "me/coder-GGUF:broken-q8_0.gguf")
    assert got.exit_code == 1 and got.stderr.startswith("Error: ") and "Traceback" not in got.output


def test_an_unknown_name_is_answered_with_those_that_are_recommended():
    got = run("get", "qwen2.5-coder")
    assert got.exit_code == 1
    assert got.stderr.startswith("Error: there is no recommended model 'qwen2.5-coder'; there are\n")
    assert all(f"  {row.name}\n" in got.stderr for row in read_table())


def test_of_a_repository_with_several_files_one_has_to_be_chosen(hub: Hub):
    got = run("get", "me/coder-GGUF")
    assert got.exit_code == 1
    assert "choose one:\n  spd-lsp models get me/coder-GGUF:coder-q8_0.gguf" in got.stderr


def test_a_model_that_needs_more_packages_is_not_fetched_before_they_are_there(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "transformers", None)
    hub.add("me/coder/config.json", b"{}")
    got = run("get", "me/coder")
    assert got.exit_code == 1 and hub.ranges == []
    assert got.stderr.startswith("Error: model me/coder needs transformers, which is not installed; run: ")
    assert f"{sys.executable} -m pip install 'spd-lsp[models]'" in got.stderr.replace("\n", " ")

"""Only the safetensors files of a folder itself are read, and their headers say how large they are."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.checkpoint.weight_files import tensor_sizes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(
        {"a": torch.zeros(1000, 1000), "b": torch.zeros(500)}, tmp_path / "one.safetensors", {"format": "pt"}
    )
    save_file({"c": torch.zeros(1000, 1000, dtype=torch.float16)}, tmp_path / "two.safetensors")
    return tmp_path


def test_duplicate_weights_count_once(folder: Path) -> None:
    index = {"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert sorted(tensor_sizes(folder)) == [500, 10**6]
    save_file({"a": torch.zeros(10)}, folder / "model.safetensors")
    assert tensor_sizes(folder) == [10]


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 20, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0{}", b'\x07\0\0\0\0\0\0\0{"a":1}']
)
def test_damaged_files_count_as_nothing_until_they_are_opened(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    assert tensor_sizes(tmp_path) == []


def test_an_oversized_header_is_not_read(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", 9 << 30))
    os.truncate(weights, 10 << 30)
    assert tensor_sizes(tmp_path) == []


def sharded(folder: Path, *names: str) -> Path:
    """A folder whose index names files."""
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    save_file({"a": torch.zeros(10)}, folder / "one.safetensors")
    index = {"metadata": {}, "weight_map": {str(number): name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "../secret.safetensors",
        "a/../../secret.safetensors",
        "..\\secret.safetensors",
        "{outside}/secret.safetensors",
        "C:\\secret.safetensors",
        "pytorch_model.bin",
        "link.safetensors",
        "gone.safetensors",
        "pipe.safetensors",
        "one.safetensors\0",
        7,
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="no links, no pipes")
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, name: str) -> None:
    save_file({"a": torch.zeros(10)}, tmp_path / "secret.safetensors")
    named = str(name).replace("{outside}", str(tmp_path)) if isinstance(name, str) else name
    folder = sharded(tmp_path / "model", named, "one.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "secret.safetensors")
    (folder / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.safetensors")
    with pytest.raises(UserError, match=r"which is not a \*\.safetensors file in this folder"):
        locate(str(folder))


@pytest.mark.skipif(os.name != "posix", reason="no links")
def test_links_of_hugging_face_s_store_and_of_the_folder_itself_are_followed(tmp_path: Path) -> None:
    store = tmp_path / "models--owner--name"
    folder = sharded(store / "snapshots" / "abc", "two.safetensors", "part/one.safetensors", "here.safetensors")
    (store / "blobs").mkdir()
    save_file({"b": torch.zeros(20)}, store / "blobs" / "0123")
    (folder / "two.safetensors").symlink_to(Path("../../blobs/0123"))
    (folder / "here.safetensors").symlink_to("one.safetensors")
    (folder / "part").mkdir()
    save_file({"c": torch.zeros(5)}, folder / "part" / "one.safetensors")
    (tmp_path / "named").symlink_to(folder)
    for way in (folder, tmp_path / "named"):
        assert locate(str(way)) == way
        assert sum(tensor_sizes(way)) == 35


@pytest.mark.parametrize("content", ["[]", "{", '{"weight_map": 3}', '{"weight_map": {"a": {}}}', "[" * 100_000])
def test_a_damaged_index_is_left_to_transformers_or_refused(tmp_path: Path, content: str) -> None:
    folder = sharded(tmp_path / "model", "one.safetensors")
    (folder / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    try:
        locate(str(folder))
    except UserError as refused:
        assert "in this folder" in str(refused)

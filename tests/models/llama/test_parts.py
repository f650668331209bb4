"""A GGUF model in several files is opened by any of them, or by their folder; a missing one is named."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from ngram_builders.errors import UserError
from spd_lsp.models.hub import locate
from spd_lsp.models.load import load
from tests.models.llama.gguf_files import write_gguf

PARTS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory, needs_llama):
    """As llama.cpp's own tools write it, with the embeddings in the second part."""
    folder = tmp_path_factory.mktemp("parts")
    write_gguf(folder / "m-F32.gguf", kind="F32", per_part=13)
    assert len(list(folder.iterdir())) == PARTS
    return folder


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copied")


def part(folder, number):
    return folder / f"m-F32-{number:05}-of-{PARTS:05}.gguf"


def test_any_part_or_the_folder_names_the_model(folder):
    for named in (part(folder, 1), part(folder, 3), folder):
        assert locate(str(named)) == part(folder, 1)


def test_it_computes_what_the_whole_file_does(folder, gguf_folder):
    parts, whole = load(locate(str(folder))), load(locate(str(gguf_folder / "F32.gguf")))
    assert (parts.prefill([5, 6, 700]) == whole.prefill([5, 6, 700])).all()
    mixed = [11, 16000], np.array([0.5, 0.5])
    assert (parts.step(*mixed) == whole.step(*mixed)).all()


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_missing_part_is_named(missing, copied):
    part(copied, missing).unlink()
    left = part(copied, 1 + missing % 3)
    with pytest.raises(
        UserError, match=f"is one of 3 parts, and .* lacks m-F32-0000{missing}-of-00003.gguf; fetch"
    ):
        locate(str(left))


def test_links_into_a_store_that_names_files_otherwise(folder, tmp_path):
    """As Hugging Face's library stores them."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for number in range(1, PARTS + 1):
        blob = shutil.copy(part(folder, number), tmp_path / "blobs" / str(number))
        part(tmp_path / "snapshot", number).symlink_to(blob)
    assert load(locate(str(part(tmp_path / "snapshot", 1)))).prefill([1]).shape == (16384,)


def test_a_folder_of_several_models_names_none(gguf_folder):
    with pytest.raises(UserError, match=r"holds 4 GGUF models; name one of them, such as .*\.gguf"):
        locate(str(gguf_folder))
